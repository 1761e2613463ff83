//! Reads from the source what failures say: the code, the message and the hint of each
//! `Failure::new`, and of each variant with `#[failure(…)]`, with the text that thiserror gives it.
//!
//! It follows what the source does and no more: chains of methods, `let`, `match` and `if`,
//! constants, and functions and closures that make a failure of what they are given. What it cannot
//! follow is told as [`Said::unread`]: the text then belongs beside its code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Arm, Expr, ExprCall, ExprClosure, ExprMethodCall, Item, ItemFn, Local, Pat, Stmt};

use super::texts::{
    failure_of, filled, format_args, has_cause, literal, place_name, told, type_name,
};

/// One thing that a failure may say.
#[derive(Debug, Clone)]
pub struct Said {
    /// As the source calls it: `NoSuchFork`.
    pub code: String,
    /// With places in braces: `{name} is in use at {dir}`.
    pub message: String,
    /// Each that may come with the message.
    pub hints: BTreeSet<String>,
    /// It is made by a function or closure whose callers may say what to do.
    pub leaves_hint: bool,
    /// File and what of it could not be read.
    pub unread: Option<String>,
    pub file: String,
}

/// A text, or what has to be filled in where the text is made.
#[derive(Debug, Clone)]
enum Text {
    Known(String),
    /// What the parameter of that number is given.
    Parameter(usize),
    Unread(String),
}

/// A function or closure that makes a failure of what it is given.
#[derive(Debug, Clone)]
struct Maker {
    code: Text,
    messages: Vec<Text>,
    hints: Vec<Text>,
}

/// What is being read, where calls of it make a failure.
#[derive(Debug, Clone)]
struct Making {
    name: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `fn … -> Failure`
    Function,
    /// `let name = |…| …`
    Closure,
    Other,
}

/// The texts of an enum's variants, from `#[error("…")]`.
type Variants = BTreeMap<String, Vec<String>>;

#[derive(Default)]
struct House {
    errors: BTreeMap<String, Variants>,
    constants: BTreeMap<String, String>,
    /// Functions by name, with what they are given.
    functions: BTreeMap<String, (Vec<String>, ItemFn)>,
    /// With the file each stands in.
    makers: BTreeMap<String, (String, Maker)>,
}

/// Everything that failures say, in no order.
pub fn read(src: &Path) -> Vec<Said> {
    let mut files = Vec::new();
    collect(src, &mut files);
    files.sort();
    let parsed: Vec<(String, Vec<Item>)> = files
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).expect("source is UTF-8");
            let file = syn::parse_file(&text).expect("source that was compiled");
            let name = path
                .strip_prefix(src)
                .expect("it is beneath")
                .display()
                .to_string();
            (
                name,
                file.items
                    .into_iter()
                    .filter(|item| !is_test(item))
                    .collect(),
            )
        })
        .collect();
    let mut house = House::default();
    for (_, items) in &parsed {
        house.learn(items);
    }
    // Makers that are made of makers need a second look.
    for _ in 0..2 {
        for (file, items) in &parsed {
            let mut reader = Reader::of(&house, file);
            items.iter().for_each(|item| reader.visit_item(item));
            let found = reader.makers_found;
            house.makers.extend(found);
        }
    }
    let mut said = Vec::new();
    for (file, items) in &parsed {
        let mut reader = Reader::of(&house, file);
        items.iter().for_each(|item| reader.visit_item(item));
        said.extend(reader.said);
    }
    said
}

/// What is tried where `Failure::io` and errors with an `action` tell of it.
pub fn actions(src: &Path) -> BTreeSet<String> {
    struct Actions(BTreeSet<String>);
    impl<'ast> Visit<'ast> for Actions {
        fn visit_expr_call(&mut self, call: &'ast ExprCall) {
            if last_two(&call.func).is_some_and(|name| name == "Failure::io") {
                self.0.extend(call.args.first().and_then(literal));
            }
            visit::visit_expr_call(self, call);
        }
        fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
            for variant in &item.variants {
                let failure = failure_of(item, variant);
                let mut inner = Actions(BTreeSet::new());
                failure.iter().for_each(|it| inner.visit_expr(it));
                self.0.extend(inner.0);
            }
        }
        fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
            if matches!(&field.member, syn::Member::Named(name) if name == "action") {
                self.0.extend(literal(&field.expr));
            }
            visit::visit_field_value(self, field);
        }
    }
    let mut files = Vec::new();
    collect(src, &mut files);
    let mut actions = Actions(BTreeSet::new());
    for path in files {
        let text = fs::read_to_string(path).expect("source is UTF-8");
        let file = syn::parse_file(&text).expect("source that was compiled");
        for item in file.items.iter().filter(|item| !is_test(item)) {
            actions.visit_item(item);
        }
    }
    actions.0
}

fn collect(dir: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).expect("source can be listed") {
        let path = entry.expect("source can be listed").path();
        let name = path.file_stem().unwrap_or_default().to_owned();
        if name == "tests" || name == "fuzzing" {
            continue;
        }
        match path.is_dir() {
            true => collect(&path, files),
            false if path.extension().is_some_and(|end| end == "rs") => files.push(path),
            false => {}
        }
    }
}

fn is_test(item: &Item) -> bool {
    let attrs = match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attrs.iter().any(|attr| {
        attr.path().is_ident("cfg")
            && attr
                .parse_args::<syn::Ident>()
                .is_ok_and(|what| what == "test")
    })
}

impl House {
    fn learn(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Enum(item) => {
                    let variants = item
                        .variants
                        .iter()
                        .map(|variant| (variant.ident.to_string(), told(variant)));
                    let variants: Variants = variants.collect();
                    if variants.values().any(|texts| !texts.is_empty()) {
                        self.errors.insert(item.ident.to_string(), variants);
                    }
                }
                Item::Const(item) => {
                    if let Some(text) = literal(&item.expr) {
                        self.constants.insert(item.ident.to_string(), text);
                    }
                }
                Item::Fn(item) => {
                    let given = parameters(&item.sig);
                    self.functions
                        .insert(item.sig.ident.to_string(), (given, item.clone()));
                }
                _ => {}
            }
        }
    }
}

fn parameters(signature: &syn::Signature) -> Vec<String> {
    signature
        .inputs
        .iter()
        .filter_map(|input| match input {
            syn::FnArg::Typed(typed) => Some(pattern_name(&typed.pat)),
            syn::FnArg::Receiver(_) => None,
        })
        .collect()
}

fn pattern_name(pat: &Pat) -> String {
    match pat {
        Pat::Ident(ident) => ident.ident.to_string(),
        Pat::Type(typed) => pattern_name(&typed.pat),
        Pat::Reference(reference) => pattern_name(&reference.pat),
        _ => String::new(),
    }
}

/// `Failure::new` of `crate::ops::Failure::new`.
fn last_two(expr: &Expr) -> Option<String> {
    let Expr::Path(path) = expr else { return None };
    let names: Vec<String> = path
        .path
        .segments
        .iter()
        .map(|segment| segment.ident.to_string())
        .collect();
    match names.as_slice() {
        [.., a, b] => Some(format!("{a}::{b}")),
        [a] => Some(a.clone()),
        [] => None,
    }
}

struct Reader<'h> {
    house: &'h House,
    file: String,
    /// What the function or closure that is read is given.
    given: Vec<Vec<String>>,
    /// What `let` bound in it.
    bound: Vec<BTreeMap<String, Expr>>,
    /// Hints that a variable, or what a closure makes, gets further down.
    later: Vec<BTreeMap<String, Vec<Expr>>>,
    /// The hint that what is read now gets.
    hint: Option<Vec<Text>>,
    /// The texts that `message` stands for in a match on an error.
    arms: Vec<Vec<String>>,
    /// The name under which what is read now can be called.
    making: Vec<Making>,
    local: BTreeMap<String, Maker>,
    makers_found: BTreeMap<String, (String, Maker)>,
    imported: BTreeSet<String>,
    said: Vec<Said>,
}

impl<'h> Reader<'h> {
    fn of(house: &'h House, file: &str) -> Reader<'h> {
        Reader {
            house,
            file: file.to_owned(),
            given: Vec::new(),
            bound: Vec::new(),
            later: Vec::new(),
            hint: None,
            arms: Vec::new(),
            making: Vec::new(),
            local: BTreeMap::new(),
            makers_found: BTreeMap::new(),
            imported: BTreeSet::new(),
            said: Vec::new(),
        }
    }

    /// The texts that `expr` may be.
    fn texts(&self, expr: &Expr) -> Vec<Text> {
        let unread = || vec![Text::Unread(place_name(expr))];
        match expr {
            Expr::Lit(_) => literal(expr).map_or_else(unread, |text| vec![Text::Known(text)]),
            Expr::Reference(inner) => self.texts(&inner.expr),
            Expr::Paren(inner) => self.texts(&inner.expr),
            Expr::Group(inner) => self.texts(&inner.expr),
            Expr::Macro(mac) if mac.mac.path.is_ident("format") => {
                let (format, args) = format_args(mac);
                let texts = filled(&format, &args, &[]);
                texts
                    .iter()
                    .flat_map(|text| self.within(text, &args))
                    .collect()
            }
            Expr::MethodCall(call)
                if ["to_owned", "into", "to_string", "clone", "as_str"]
                    .contains(&call.method.to_string().as_str()) =>
            {
                self.texts(&call.receiver)
            }
            Expr::Match(it) => it
                .arms
                .iter()
                .flat_map(|arm| self.texts(&arm.body))
                .collect(),
            Expr::If(it) => {
                let mut texts = self.tail(&it.then_branch);
                if let Some((_, otherwise)) = &it.else_branch {
                    texts.extend(self.texts(otherwise));
                }
                texts
            }
            Expr::Block(block) => self.tail(&block.block),
            Expr::Path(path) => {
                let Some(name) = path
                    .path
                    .segments
                    .last()
                    .map(|segment| segment.ident.to_string())
                else {
                    return unread();
                };
                if let Some(text) = self.house.constants.get(&name) {
                    return vec![Text::Known(text.clone())];
                }
                let innermost = self
                    .given
                    .last()
                    .and_then(|given| given.iter().position(|it| *it == name));
                if let Some(number) = innermost {
                    return vec![Text::Parameter(number)];
                }
                // An error is its text.
                if ["message", "self"].contains(&name.as_str())
                    && let Some(texts) = self.arms.last()
                    && !texts.is_empty()
                {
                    return texts.iter().cloned().map(Text::Known).collect();
                }
                match self.bound.iter().rev().find_map(|bound| bound.get(&name)) {
                    // A shadowed name could come back to itself.
                    Some(init) if place_name(init) != name => self.texts(init),
                    _ => unread(),
                }
            }
            Expr::Call(call) => {
                let name = last_two(&call.func).unwrap_or_default();
                let name = name.rsplit("::").next().unwrap_or_default();
                match self.house.functions.get(name) {
                    Some((given, function)) => {
                        let mut inner = Reader::of(self.house, &self.file);
                        inner.given.push(given.clone());
                        inner.bound.push(bindings(&function.block));
                        let texts = inner.tail(&function.block);
                        texts
                            .into_iter()
                            .flat_map(|text| match text {
                                Text::Parameter(number) => call
                                    .args
                                    .iter()
                                    .nth(number)
                                    .map_or_else(unread, |arg| self.texts(arg)),
                                text => vec![text],
                            })
                            .collect()
                    }
                    None => unread(),
                }
            }
            Expr::Return(_) => Vec::new(),
            _ => unread(),
        }
    }

    /// A text whose places are filled by texts that are known: they are put there.
    fn within(&self, text: &str, args: &[Expr]) -> Vec<Text> {
        let mut texts = vec![text.to_owned()];
        let arms = self
            .arms
            .last()
            .filter(|texts| !texts.is_empty() && text.contains("{message}"));
        if let Some(arms) = arms {
            texts = arms
                .iter()
                .map(|arm| text.replace("{message}", arm))
                .collect();
        }
        for arg in args.iter().filter(|arg| matches!(arg, Expr::Path(_))) {
            if let [Text::Known(known)] = self.texts(arg).as_slice() {
                let place = format!("{{{}}}", place_name(arg));
                texts
                    .iter_mut()
                    .for_each(|text| *text = text.replace(&place, known));
            }
        }
        for (name, known) in &self.house.constants {
            for text in &mut texts {
                *text = text.replace(&format!("{{{name}}}"), known);
            }
        }
        texts.into_iter().map(Text::Known).collect()
    }

    fn tail(&self, block: &syn::Block) -> Vec<Text> {
        match block.stmts.last() {
            Some(Stmt::Expr(expr, None)) => self.texts(expr),
            _ => Vec::new(),
        }
    }

    /// The code that `expr` is.
    fn code(&self, expr: &Expr) -> Text {
        if let Some(name) = last_two(expr) {
            if let Some(code) = name.strip_prefix("ErrorCode::") {
                return Text::Known(code.to_owned());
            }
            if let Some(number) = self
                .given
                .last()
                .and_then(|given| given.iter().position(|it| *it == name))
            {
                return Text::Parameter(number);
            }
        }
        Text::Unread(place_name(expr))
    }

    fn hints(&self) -> Vec<Text> {
        self.hint.clone().unwrap_or_default()
    }

    fn tell(&mut self, maker: Maker) {
        let is_open = |text: &Text| matches!(text, Text::Parameter(_));
        let open = is_open(&maker.code)
            || maker.messages.iter().any(is_open)
            || maker.hints.iter().any(is_open);
        // One that says nothing to do leaves that to who calls it.
        let leaves_hint = maker.hints.is_empty();
        let mut is_maker = false;
        if (open || leaves_hint)
            && let Some(making) = self.making.last().cloned()
        {
            is_maker = making.kind != Kind::Other;
            match making.kind {
                Kind::Function => {
                    self.makers_found
                        .insert(making.name, (self.file.clone(), maker.clone()));
                }
                Kind::Closure => {
                    self.local.insert(making.name, maker.clone());
                }
                Kind::Other => {}
            }
        }
        if open && is_maker {
            return;
        }
        let mut hints = BTreeSet::new();
        let mut unread = None;
        for hint in &maker.hints {
            match hint {
                Text::Known(hint) => {
                    hints.insert(hint.clone());
                }
                Text::Parameter(_) => unread = Some("the hint".to_owned()),
                Text::Unread(what) => unread = Some(format!("the hint {what}")),
            }
        }
        let code = match maker.code {
            Text::Known(code) => code,
            _ => {
                unread = Some("the code".to_owned());
                String::new()
            }
        };
        for message in maker.messages {
            let (message, unread) = match message {
                Text::Known(message) => (message, unread.clone()),
                Text::Unread(what) => (format!("{{{what}}}"), Some(format!("the message {what}"))),
                Text::Parameter(_) => ("{message}".to_owned(), Some("the message".to_owned())),
            };
            self.said.push(Said {
                leaves_hint: is_maker,
                code: code.clone(),
                message,
                hints: hints.clone(),
                unread,
                file: self.file.clone(),
            });
        }
    }

    /// A call of what makes a failure: with what it is given.
    fn call_maker(&mut self, maker: &Maker, args: &[&Expr]) {
        let given = |this: &Self, text: &Text| match text {
            Text::Parameter(number) => args.get(*number).map_or_else(
                || vec![Text::Unread("argument".to_owned())],
                |arg| this.texts(arg),
            ),
            text => vec![text.clone()],
        };
        let code = match &maker.code {
            Text::Parameter(number) => args
                .get(*number)
                .map_or_else(|| Text::Unread("code".to_owned()), |arg| self.code(arg)),
            code => code.clone(),
        };
        let messages = maker
            .messages
            .iter()
            .flat_map(|text| given(self, text))
            .collect();
        let own: Vec<Text> = maker
            .hints
            .iter()
            .flat_map(|text| given(self, text))
            .collect();
        let hints = match &self.hint {
            Some(hints) => hints.clone(),
            None => own,
        };
        self.tell(Maker {
            code,
            messages,
            hints,
        });
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let name = signature.ident.to_string();
        let given = parameters(signature);
        let kind = match &signature.output {
            syn::ReturnType::Type(_, ty) if type_name(ty) == "failure" && name != "new" => {
                Kind::Function
            }
            _ => Kind::Other,
        };
        let local = self.local.clone();
        let hint = self.hint.take();
        self.making.push(Making { name, kind });
        self.given.push(given);
        self.bound.push(bindings(block));
        self.later.push(later_hints(block));
        self.visit_block(block);
        self.later.pop();
        self.bound.pop();
        self.given.pop();
        self.making.pop();
        self.hint = hint;
        self.local = local;
    }

    /// What is called by `name`, which may have its module before it.
    fn maker(&self, name: &str) -> Option<Maker> {
        let (module, short) = name.rsplit_once("::").unwrap_or(("", name));
        if let (Some(maker), "") = (self.local.get(short), module) {
            return Some(maker.clone());
        }
        let (home, maker) = self.house.makers.get(short)?;
        let home_module = home
            .trim_end_matches("/mod.rs")
            .trim_end_matches(".rs")
            .rsplit('/')
            .next();
        let is_meant = match module {
            "" => {
                let is_near = part(home) == part(&self.file) || part(home) == Some("failure");
                *home == self.file || self.imported.contains(short) && is_near
            }
            module => home_module == Some(module),
        };
        is_meant.then(|| maker.clone())
    }

    fn with_hint(&mut self, hint: Option<Vec<Text>>, read: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.hint, hint);
        read(self);
        self.hint = before;
    }
}

/// The part of the house that a file is in.
fn part(file: &str) -> Option<&str> {
    file.split('/').next()
}

/// What `let` binds in a block, also further in.
fn bindings(block: &syn::Block) -> BTreeMap<String, Expr> {
    struct Bindings(BTreeMap<String, Expr>);
    impl<'ast> Visit<'ast> for Bindings {
        fn visit_local(&mut self, local: &'ast Local) {
            let name = pattern_name(&local.pat);
            if let (false, Some(init)) = (name.is_empty(), &local.init) {
                self.0.insert(name, (*init.expr).clone());
            }
            visit::visit_local(self, local);
        }
    }
    let mut bindings = Bindings(BTreeMap::new());
    bindings.visit_block(block);
    bindings.0
}

/// The hints that variables get in a block by `name.hint(…)`.
fn later_hints(block: &syn::Block) -> BTreeMap<String, Vec<Expr>> {
    struct Later(BTreeMap<String, Vec<Expr>>);
    impl<'ast> Visit<'ast> for Later {
        fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
            if call.method == "hint"
                && let Some(name) = root_of(&call.receiver)
                && let Some(hint) = call.args.first()
            {
                self.0.entry(name).or_default().push(hint.clone());
            }
            visit::visit_expr_method_call(self, call);
        }
    }
    let mut later = Later(BTreeMap::new());
    later.visit_block(block);
    later.0
}

/// The variable at the root of a chain of methods.
fn root_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Path(_) => last_two(expr),
        Expr::MethodCall(call) if call.method == "fold" => call.args.first().and_then(root_of),
        Expr::MethodCall(call) => root_of(&call.receiver),
        Expr::Paren(paren) => root_of(&paren.expr),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_use_name(&mut self, name: &'ast syn::UseName) {
        self.imported.insert(name.ident.to_string());
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        for variant in &item.variants {
            let Some(failure) = failure_of(item, variant) else {
                continue;
            };
            let mut texts = told(variant);
            if has_cause(variant) {
                texts.iter_mut().for_each(without_cause);
            }
            let mut inner = Reader::of(self.house, &self.file);
            inner.imported.clone_from(&self.imported);
            inner.arms.push(texts);
            inner.visit_expr(&failure);
            self.said.extend(inner.said);
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        let name = pattern_name(&local.pat);
        let Some(init) = &local.init else { return };
        if let Expr::Closure(closure) = &*init.expr {
            self.making.push(Making {
                name,
                kind: Kind::Closure,
            });
            self.visit_expr_closure(closure);
            self.making.pop();
            return;
        }
        let later = self
            .later
            .last()
            .and_then(|later| later.get(&name))
            .cloned();
        let hint = later.map(|hints| hints.iter().flat_map(|hint| self.texts(hint)).collect());
        self.with_hint(hint, |this| {
            this.visit_expr(&init.expr);
            if let Some((_, diverge)) = &init.diverge {
                this.with_hint(None, |this| this.visit_expr(diverge));
            }
        });
    }

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        let given: Vec<String> = closure.inputs.iter().map(pattern_name).collect();
        self.given.push(given);
        self.with_hint(None, |this| this.visit_expr(&closure.body));
        self.given.pop();
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        let texts = variants(&arm.pat, self.house);
        let is_error = !texts.is_empty();
        if is_error {
            self.arms
                .push(texts.into_iter().flatten().collect::<Vec<String>>());
        }
        self.visit_expr(&arm.body);
        if is_error {
            self.arms.pop();
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let method = call.method.to_string();
        match method.as_str() {
            "hint" => {
                let hint = self
                    .hint
                    .clone()
                    .or_else(|| call.args.first().map(|hint| self.texts(hint)));
                self.with_hint(hint, |this| this.visit_expr(&call.receiver));
                self.with_hint(None, |this| {
                    call.args.iter().for_each(|arg| this.visit_expr(arg))
                });
            }
            "cause" | "fold" | "into" | "clone" => {
                self.visit_expr(&call.receiver);
                call.args.iter().for_each(|arg| self.visit_expr(arg));
            }
            _ => self.with_hint(None, |this| visit::visit_expr_method_call(this, call)),
        }
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        let name = last_two(&call.func).unwrap_or_default();
        let args: Vec<&Expr> = call.args.iter().collect();
        if let ("Failure::new", [code, message]) = (name.as_str(), args.as_slice()) {
            let maker = Maker {
                code: self.code(code),
                messages: self.texts(message),
                hints: self.hints(),
            };
            self.tell(maker);
            return;
        }
        match self.maker(&name) {
            Some(maker) => self.call_maker(&maker, &args),
            _ if ["Err", "Some"].contains(&name.as_str()) => visit::visit_expr_call(self, call),
            _ => self.with_hint(None, |this| visit::visit_expr_call(this, call)),
        }
    }
}

/// Takes the cause off that a text ends with: `: {reason}`.
fn without_cause(text: &mut String) {
    if let Some((message, _)) = text.rsplit_once(": {") {
        text.truncate(message.len());
    }
}

/// The texts of each error that a pattern names.
fn variants(pat: &Pat, house: &House) -> Vec<Vec<String>> {
    let of_path = |path: &syn::Path| -> Vec<Vec<String>> {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        let [.., error, variant] = names.as_slice() else {
            return Vec::new();
        };
        match house
            .errors
            .get(error)
            .and_then(|variants| variants.get(variant))
        {
            Some(texts) => vec![texts.clone()],
            None => Vec::new(),
        }
    };
    match pat {
        Pat::Path(path) => of_path(&path.path),
        Pat::Struct(it) => of_path(&it.path),
        Pat::TupleStruct(it) => {
            let inner: Vec<_> = it
                .elems
                .iter()
                .flat_map(|pat| variants(pat, house))
                .collect();
            match inner.is_empty() {
                true => of_path(&it.path),
                false => inner,
            }
        }
        Pat::Or(it) => it
            .cases
            .iter()
            .flat_map(|pat| variants(pat, house))
            .collect(),
        Pat::Paren(it) => variants(&it.pat, house),
        Pat::Reference(it) => variants(&it.pat, house),
        _ => Vec::new(),
    }
}
