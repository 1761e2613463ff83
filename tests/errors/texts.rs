//! Texts as the source has them: literals, format strings with their places named, and what
//! thiserror gives to errors.

use syn::punctuated::Punctuated;
use syn::{Expr, Lit, Stmt, Token, parse_quote};

/// The texts of a variant, their places named; none for one that has none of its own.
pub fn told(variant: &syn::Variant) -> Vec<String> {
    let attr = variant
        .attrs
        .iter()
        .find(|attr| attr.path().is_ident("error"));
    let Some(syn::Meta::List(list)) = attr.map(|attr| &attr.meta) else {
        return Vec::new();
    };
    // thiserror's `.0` and `.name` are no expressions of Rust's.
    let tokens = list.tokens.to_string();
    let tokens = tokens.replace("(.", "(this.").replace(", .", ", this.");
    let Ok(args) =
        syn::parse::Parser::parse_str(Punctuated::<Expr, Token![,]>::parse_terminated, &tokens)
    else {
        return Vec::new();
    };
    let mut args = args.into_iter();
    let Some(text) = args.next().and_then(|first| literal(&first)) else {
        return Vec::new();
    };
    let numbered: Vec<String> = variant
        .fields
        .iter()
        .map(|field| type_name(&field.ty))
        .collect();
    let args: Vec<Expr> = args.filter(|arg| !matches!(arg, Expr::Assign(_))).collect();
    filled(&text, &args, &numbered)
}

/// What `#[failure(…)]` and `#[hint(…)]` at a variant and at its enum say, as code that makes the
/// failure of what is called `message`. None for one that has the failure of another error.
pub fn failure_of(item: &syn::ItemEnum, variant: &syn::Variant) -> Option<Expr> {
    let told = Told::of(&item.attrs, Told::default());
    let told = Told::of(&variant.attrs, told);
    if told.with.is_some() {
        return told.with;
    }
    let code = told.code?;
    let message = told.message.unwrap_or_else(|| parse_quote!(message));
    let failure = parse_quote!(Failure::new(ErrorCode::#code, #message));
    Some(match told.hint {
        Some(hint) => parse_quote!(#failure.hint(#hint)),
        None => failure,
    })
}

/// Whether `#[failure(…)]` at a variant names the cause, with which its text may end.
pub fn has_cause(variant: &syn::Variant) -> bool {
    Told::of(&variant.attrs, Told::default()).has_cause
}

#[derive(Default)]
struct Told {
    code: Option<syn::Ident>,
    message: Option<Expr>,
    hint: Option<Expr>,
    with: Option<Expr>,
    has_cause: bool,
}

impl Told {
    fn of(attrs: &[syn::Attribute], mut told: Told) -> Told {
        for attr in attrs {
            if attr.path().is_ident("failure") {
                let read = attr.parse_nested_meta(|meta| told.take(meta));
                read.expect("attributes that were derived from");
            } else if attr.path().is_ident("hint") {
                told.hint = Some(attr.parse_args_with(text).expect("a text"));
            }
        }
        told
    }

    fn take(&mut self, meta: syn::meta::ParseNestedMeta<'_>) -> syn::Result<()> {
        let name = meta.path.require_ident()?;
        match name.to_string().as_str() {
            "message" => {
                let content;
                syn::parenthesized!(content in meta.input);
                self.message = Some(text(&content)?);
            }
            "with" => self.with = Some(meta.value()?.parse()?),
            "cause" => {
                let _: Expr = meta.value()?.parse()?;
                self.has_cause = true;
            }
            "causes" | "paths" => drop::<Expr>(meta.value()?.parse()?),
            "transparent" => self.code = None,
            _ => self.code = Some(name.clone()),
        }
        Ok(())
    }
}

fn text(input: syn::parse::ParseStream<'_>) -> syn::Result<Expr> {
    if !input.peek(syn::LitStr) {
        return input.parse();
    }
    let format = input.parse::<proc_macro2::TokenStream>()?.to_string();
    // The error itself is what the reader calls the message.
    let format = format.replace("{self}", "{message}");
    syn::parse_str(&format!("format!({format})"))
}

pub fn type_name(ty: &syn::Type) -> String {
    match ty {
        syn::Type::Path(path) => {
            let last = path
                .path
                .segments
                .last()
                .map(|segment| segment.ident.to_string());
            match last.as_deref() {
                Some("PathBuf" | "RepoPath") => "path".to_owned(),
                Some("String" | "str" | "OsString" | "ForkName") => "name".to_owned(),
                Some("u64" | "u32" | "usize") => "number".to_owned(),
                Some("Vec") => "paths".to_owned(),
                Some(other) => other.to_lowercase(),
                None => "what".to_owned(),
            }
        }
        syn::Type::Reference(reference) => type_name(&reference.elem),
        _ => "what".to_owned(),
    }
}

/// Each text that a format string may become, its places named after what fills them.
pub fn filled(format: &str, args: &[Expr], numbered: &[String]) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut args = args.iter();
    let mut rest = format;
    let push =
        |texts: &mut Vec<String>, what: &str| texts.iter_mut().for_each(|text| text.push_str(what));
    while let Some(at) = rest.find(['{', '}']) {
        push(&mut texts, &rest[..at]);
        rest = &rest[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            push(&mut texts, &rest[..1]);
            rest = &rest[2..];
            continue;
        }
        let end = rest.find('}').unwrap_or(rest.len() - 1);
        let (name, how) = rest[1..end].split_once(':').unwrap_or((&rest[1..end], ""));
        let of_number = |number: usize| match numbered.get(number) {
            Some(name) => format!("{{{name}}}"),
            None => "{what}".to_owned(),
        };
        let alternatives = match (name.parse::<usize>(), args.as_slice()) {
            (Ok(number), _) => vec![of_number(number)],
            (Err(_), [arg, ..]) if name.is_empty() => {
                args.next();
                alternatives(arg, &of_number)
            }
            (Err(_), _) => vec![format!("{{{name}}}")],
        };
        let quote = if how.contains('?') { "\"" } else { "" };
        texts = texts
            .iter()
            .flat_map(|text| {
                alternatives
                    .iter()
                    .map(move |it| format!("{text}{quote}{it}{quote}"))
            })
            .collect();
        rest = &rest[end + 1..];
    }
    push(&mut texts, rest);
    texts
}

/// The texts that may fill a place: as they are, or its name in braces.
fn alternatives(expr: &Expr, of_number: &impl Fn(usize) -> String) -> Vec<String> {
    let of_block = |block: &syn::Block| match block.stmts.last() {
        Some(Stmt::Expr(expr, None)) => alternatives(expr, of_number),
        _ => Vec::new(),
    };
    match expr {
        Expr::Lit(_) => literal(expr).into_iter().collect(),
        Expr::Macro(mac) if mac.mac.path.is_ident("format") => {
            let (format, args) = format_args(mac);
            filled(&format, &args, &[])
        }
        Expr::MethodCall(call) if call.method == "to_owned" => {
            alternatives(&call.receiver, of_number)
        }
        Expr::Match(it) => it
            .arms
            .iter()
            .flat_map(|arm| alternatives(&arm.body, of_number))
            .collect(),
        Expr::If(it) => {
            let mut texts = of_block(&it.then_branch);
            texts.extend(
                it.else_branch
                    .iter()
                    .flat_map(|(_, other)| alternatives(other, of_number)),
            );
            texts
        }
        Expr::Block(block) => of_block(&block.block),
        _ => match place_name(expr).strip_prefix("this.") {
            Some(field) => vec![
                field
                    .parse()
                    .map_or_else(|_| format!("{{{field}}}"), of_number),
            ],
            None => vec![format!("{{{}}}", place_name(expr))],
        },
    }
}

pub fn format_args(mac: &syn::ExprMacro) -> (String, Vec<Expr>) {
    let args = mac
        .mac
        .parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated);
    let mut args = args.expect("the arguments of format!").into_iter();
    let format = args.next().and_then(|first| literal(&first));
    let args = args.filter(|arg| !matches!(arg, Expr::Assign(_)));
    (format.expect("a format string"), args.collect())
}

/// What a place is called that `expr` fills.
pub fn place_name(expr: &Expr) -> String {
    match expr {
        Expr::Path(path) => path.path.segments.last().map_or_else(
            || "what".to_owned(),
            |segment| segment.ident.to_string().to_lowercase(),
        ),
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => name.to_string(),
            syn::Member::Unnamed(number) => match place_name(&field.base).as_str() {
                "this" => format!("this.{}", number.index),
                base => base.to_owned(),
            },
        },
        Expr::MethodCall(call) => match call.method.to_string().as_str() {
            "len" | "count" => "count".to_owned(),
            "join" if call.args.iter().any(|arg| matches!(arg, Expr::Path(_))) => "path".to_owned(),
            _ => place_name(&call.receiver),
        },
        Expr::Call(call) => call
            .args
            .first()
            .map_or_else(|| "what".to_owned(), place_name),
        Expr::Reference(reference) => place_name(&reference.expr),
        Expr::Paren(paren) => place_name(&paren.expr),
        Expr::Binary(binary) => place_name(&binary.left),
        Expr::Index(index) => place_name(&index.expr),
        Expr::Try(tried) => place_name(&tried.expr),
        Expr::Unary(unary) => place_name(&unary.expr),
        _ => "what".to_owned(),
    }
}

pub fn literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        Expr::Reference(reference) => literal(&reference.expr),
        _ => None,
    }
}
