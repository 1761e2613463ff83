//! Entries of the list of tools, and the form of answers.

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool as ToolLine, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::call::ToolCall;
use super::schema;
use super::session::Session;
use tine_ops::protocol::ToolAnswer;
use tine_ops::{ErrorCode, Failure, Operation};
use tine_render::failure::FailureObject;
use tine_tools::run::Cancel;

/// Maximum size of an answer's text, in bytes.
///
/// A longer text comes in pages, or the answer says where the rest is.
pub(crate) const MAX_TEXT: usize = 48 << 10;

/// Annotations that clients may show to people before a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hints {
    read_only: bool,
    destructive: bool,
    idempotent: bool,
    open_world: bool,
}

impl Hints {
    /// The tool changes nothing.
    pub(crate) const READ_ONLY: Hints = Hints {
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
    };
    /// The tool only adds.
    pub(crate) const ADDITIVE: Hints = Hints {
        read_only: false,
        idempotent: false,
        ..Hints::READ_ONLY
    };
    /// The tool changes only the session's own state.
    pub(crate) const SESSION: Hints = Hints {
        idempotent: true,
        ..Hints::ADDITIVE
    };
    /// The tool changes or removes what exists.
    pub(crate) const DESTRUCTIVE: Hints = Hints {
        destructive: true,
        ..Hints::ADDITIVE
    };
    /// The same as `DESTRUCTIVE`, but repeating a call changes nothing more.
    pub(crate) const IDEMPOTENT: Hints = Hints {
        idempotent: true,
        ..Hints::DESTRUCTIVE
    };
    /// The tool may do anything, anywhere.
    pub(crate) const OPEN_WORLD: Hints = Hints {
        open_world: true,
        ..Hints::DESTRUCTIVE
    };
}

/// Pairs of an argument and its description; the tool itself is `""`.
///
/// They stand in place of an operation's own descriptions, which are for people.
pub(crate) type Descriptions = &'static [(&'static str, &'static str)];

/// Answer of a tool, with the same in words.
pub(crate) struct ToolOutput<A> {
    pub answer: A,
    pub text: String,
}

impl<A> ToolOutput<A> {
    pub(crate) fn new(answer: A, text: impl Into<String>) -> ToolOutput<A> {
        ToolOutput {
            answer,
            text: text.into(),
        }
    }
}

/// Result of a tool's function.
pub(crate) type ToolResult<A> = Result<ToolOutput<A>, Failure>;

/// Running call of a tool.
pub(crate) struct Call<'c> {
    pub session: &'c Session,
    tool: &'static str,
    cancellation: &'c ToolCall,
}

impl Call<'_> {
    /// Fails if the call was cancelled.
    ///
    /// A tool checks this before each step that changes something.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.cancellation.check()
    }

    /// Returns the handle that ends commands together with the call.
    pub(crate) fn canceller(&self) -> &Cancel {
        self.cancellation.canceller()
    }

    /// Returns the call's name in the log of operations.
    pub(crate) fn command(&self, what: &str) -> String {
        match what {
            "" => format!("mcp {}", self.tool),
            what => format!("mcp {} {what}", self.tool),
        }
    }

    /// Routes a tool operation to the active fork or an open buffer.
    ///
    /// The log of operations names the tool and `what`.
    pub(crate) fn route<A, S>(
        &self,
        operation: impl Operation<Answer = ToolAnswer<A, S>>,
        what: &str,
    ) -> Result<A, Failure> {
        self.session.route(operation, self.command(what))
    }
}

/// Function of a tool with its arguments. Returns the answer, and the same in words.
type Run = Box<dyn FnOnce(&Call<'_>) -> Result<(Value, String), Failure> + Send>;

/// Tool with its arguments, ready to be called.
pub(crate) struct Prepared {
    /// Description of the work for progress messages, if it may take long.
    pub doing: Option<String>,
    tool: &'static str,
    run: Run,
}

impl Prepared {
    /// Calls the tool. It must have its own thread.
    pub(crate) fn call(self, session: &Session, cancellation: &ToolCall) -> CallToolResult {
        let call = Call {
            session,
            tool: self.tool,
            cancellation,
        };
        match call.check().and_then(|()| (self.run)(&call)) {
            Ok((answer, text)) => {
                let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
                result.structured_content = Some(answer);
                result
            }
            Err(failure) => failed(&failure),
        }
    }
}

/// Converts an answer to JSON.
///
/// Fields that are null, or that the schema does not list, are left out.
pub(crate) fn in_json(
    answer: &impl Serialize,
    schema: Option<&JsonObject>,
) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(answer).map_err(|error| {
        Failure::new(ErrorCode::Internal, "the answer cannot be told in JSON")
            .cause(error.to_string())
    })?;
    keep_listed(&mut value, schema);
    Ok(value)
}

fn keep_listed(value: &mut Value, schema: Option<&JsonObject>) {
    let part = |name| schema?.get(name)?.as_object();
    match value {
        Value::Object(fields) => {
            let listed = part("properties");
            fields.retain(|name, field| {
                !field.is_null() && listed.is_none_or(|listed| listed.contains_key(name))
            });
            for (name, field) in fields {
                keep_listed(
                    field,
                    listed.and_then(|listed| listed.get(name)?.as_object()),
                );
            }
        }
        Value::Array(items) => {
            let schema = part("items");
            items.iter_mut().for_each(|item| keep_listed(item, schema));
        }
        _ => {}
    }
}

/// Returns a failure as a tool's error result, which the model sees.
pub(crate) fn failed(failure: &Failure) -> CallToolResult {
    let mut text = format!("error: {} ({})", failure.message, failure.code);
    for cause in &failure.causes {
        text.push_str(&format!("\ncause: {cause}"));
    }
    if let Some(hint) = &failure.hint {
        text.push_str(&format!("\nhint: {hint}"));
    }
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = in_json(&FailureObject::from(failure), None).ok();
    result
}

/// Entry in the list of tools.
pub(crate) struct Entry {
    pub line: ToolLine,
    name: &'static str,
    parse: Box<dyn Fn(JsonObject) -> serde_json::Result<Run> + Send + Sync>,
    progress: Option<fn(&JsonObject) -> String>,
}

impl Hints {
    /// Makes a tool of a function.
    ///
    /// The fields of `T` are the arguments, and its doc comments are the descriptions that a model
    /// gets. A field with `#[schemars(skip)]` is refused as an argument, and left out of an answer.
    /// The title is for people.
    pub(crate) fn tool<T, A>(
        self,
        name: &'static str,
        title: &'static str,
        run: impl Fn(T, &Call<'_>) -> ToolResult<A> + Copy + Send + Sync + 'static,
    ) -> Entry
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
        A: Serialize + JsonSchema,
    {
        let (arguments, description) = schema::of_arguments::<T>();
        let answer_schema = schema::of_answer::<A>();
        let annotations = ToolAnnotations::with_title(title)
            .read_only(self.read_only)
            .destructive(self.destructive)
            .idempotent(self.idempotent)
            .open_world(self.open_world);
        let line = ToolLine::new(name, description, arguments)
            .with_title(title)
            .with_raw_output_schema(answer_schema.clone())
            .with_annotations(annotations);
        let parse = move |arguments| -> serde_json::Result<Run> {
            let arguments: T = serde_json::from_value(Value::Object(arguments))?;
            let schema = answer_schema.clone();
            Ok(Box::new(move |call| {
                let ToolOutput { answer, text } = run(arguments, call)?;
                Ok((in_json(&answer, Some(&schema))?, text))
            }))
        };
        Entry {
            name,
            line,
            parse: Box::new(parse),
            progress: None,
        }
    }

    /// Makes a tool of an operation on the active fork.
    ///
    /// `text` words the operation's answer.
    pub(crate) fn operation<O>(
        self,
        name: &'static str,
        title: &'static str,
        text: impl Fn(&O::Answer) -> String + Copy + Send + Sync + 'static,
    ) -> Entry
    where
        O: Operation + JsonSchema + Send + 'static,
        O::Answer: JsonSchema,
    {
        self.tool(name, title, move |operation: O, call: &Call<'_>| {
            let answer = call.session.call(operation, String::new())?;
            let text = text(&answer);
            Ok(ToolOutput::new(answer, text))
        })
    }
}

impl Entry {
    /// Adds a description of the work for progress messages.
    ///
    /// Tools that may take long have one.
    pub(crate) fn progress(mut self, describe: fn(&JsonObject) -> String) -> Entry {
        self.progress = Some(describe);
        self
    }

    /// Replaces descriptions of the tool and its arguments.
    pub(crate) fn describe(mut self, descriptions: Descriptions) -> Entry {
        let schema = Arc::make_mut(&mut self.line.input_schema);
        let mut properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (name, text) in descriptions {
            if name.is_empty() {
                self.line.description = Some((*text).into());
                continue;
            }
            let property = properties.as_mut().and_then(|all| all.get_mut(*name));
            let property = property.and_then(Value::as_object_mut);
            debug_assert!(property.is_some(), "{name} is not an argument");
            if let Some(property) = property {
                property.insert("description".to_owned(), (*text).into());
            }
        }
        self
    }

    /// Parses the arguments of a call.
    pub(crate) fn prepare(&self, arguments: JsonObject) -> Result<Prepared, Failure> {
        let properties = self.line.input_schema.get("properties");
        let known: Vec<&str> = properties
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(JsonObject::keys)
            .map(String::as_str)
            .collect();
        // Arguments that the schema does not list are hidden from models, and refused.
        let unknown = arguments
            .keys()
            .find(|name| !known.contains(&name.as_str()))
            .cloned();
        let doing = self.progress.map(|describe| describe(&arguments));
        let run = match unknown {
            Some(name) => Err(serde::de::Error::custom(unknown_field(&name, &known))),
            None => (self.parse)(arguments),
        };
        let tool = self.name;
        let prepared = run.map(|run| Prepared { doing, tool, run });
        prepared.map_err(|error| {
            Failure::new(
                ErrorCode::Usage,
                format!("the arguments of {} do not fit", self.line.name),
            )
            .cause(error.to_string())
            .hint(if known.is_empty() {
                "it takes none".to_owned()
            } else {
                format!("it takes {}", known.join(", "))
            })
        })
    }
}

/// Words the error of an unknown argument, as serde does.
fn unknown_field(name: &str, known: &[&str]) -> String {
    let quoted: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let expected = match quoted.as_slice() {
        [] => "there are no fields".to_owned(),
        [only] => format!("expected {only}"),
        [one, other] => format!("expected {one} or {other}"),
        _ => format!("expected one of {}", quoted.join(", ")),
    };
    format!("unknown field `{name}`, {expected}")
}

/// Cuts `text` to at most `limit` bytes, at a character. Returns whether it was cut.
pub(crate) fn cut(text: &mut String, limit: usize) -> bool {
    if text.len() <= limit {
        return false;
    }
    let end = (0..=limit).rev().find(|&at| text.is_char_boundary(at));
    text.truncate(end.unwrap_or(0));
    true
}
