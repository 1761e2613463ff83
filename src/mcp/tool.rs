//! The trait of tools, and the form of answers and failures.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool as ToolLine, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::call::ToolCall;
use super::schema;
use super::session::Session;
use tine_ops::{ErrorCode, Failure};
use tine_render::failure::FailureObject;

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
    pub(crate) const LOOKS: Hints = Hints {
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
    };
    /// The tool only adds.
    pub(crate) const ADDS: Hints = Hints {
        read_only: false,
        idempotent: false,
        ..Hints::LOOKS
    };
    /// The tool changes only the session's own state.
    pub(crate) const GOES: Hints = Hints {
        idempotent: true,
        ..Hints::ADDS
    };
    /// The tool changes or removes what exists.
    pub(crate) const CHANGES: Hints = Hints {
        destructive: true,
        ..Hints::ADDS
    };
    /// The same as `CHANGES`, but repeating a call changes nothing more.
    pub(crate) const SETS: Hints = Hints {
        idempotent: true,
        ..Hints::CHANGES
    };
    /// The tool may do anything, anywhere.
    pub(crate) const ANYTHING: Hints = Hints {
        open_world: true,
        ..Hints::CHANGES
    };
}

/// Pairs of an argument and its description; the tool itself is `""`.
pub(crate) type Words = &'static [(&'static str, &'static str)];

/// A tool of the server.
///
/// The type is an operation, or one flattened with what an agent is asked besides. Its fields are
/// the arguments, and the doc comments are the descriptions that a model gets. A field with
/// `#[schemars(skip)]` is refused as an argument, and left out of an answer.
pub(crate) trait Tool: DeserializeOwned + JsonSchema + Send + 'static {
    const NAME: &'static str;
    /// Title for people.
    const TITLE: &'static str;
    const HINTS: Hints;
    /// Descriptions in place of the operation's own, which are for people.
    const WORDS: Words = &[];
    /// The operation's answer, with what only an agent gets.
    type Answer: Serialize + JsonSchema;

    /// Describes the work for progress messages, if it may take long.
    fn doing(&self) -> Option<String> {
        None
    }

    /// Runs the tool. It is called on its own thread.
    fn call(self, session: &Session, call: &ToolCall) -> Result<ToolOutput<Self::Answer>, Failure>;
}

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

/// Tool with its arguments, ready to be called.
pub(crate) trait Prepared: Send {
    fn doing(&self) -> Option<String>;
    fn call(self: Box<Self>, session: &Session, call: &ToolCall, entry: &Entry) -> CallToolResult;
}

impl<T: Tool> Prepared for T {
    fn doing(&self) -> Option<String> {
        Tool::doing(self)
    }

    fn call(self: Box<Self>, session: &Session, call: &ToolCall, entry: &Entry) -> CallToolResult {
        let output = call
            .check()
            .and_then(|()| Tool::call(*self, session, call))
            .and_then(|output| Ok((entry.in_json(&output.answer)?, output.text)));
        match output {
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
    prepare: fn(JsonObject) -> Result<Box<dyn Prepared>, serde_json::Error>,
}

impl Entry {
    pub(crate) fn of<T: Tool>() -> Entry {
        let (arguments, description) = schema::of_arguments::<T>(T::WORDS);
        let Hints {
            read_only,
            destructive,
            idempotent,
            open_world,
        } = T::HINTS;
        let annotations = ToolAnnotations::with_title(T::TITLE)
            .read_only(read_only)
            .destructive(destructive)
            .idempotent(idempotent)
            .open_world(open_world);
        let line = ToolLine::new(T::NAME, description, arguments)
            .with_title(T::TITLE)
            .with_raw_output_schema(schema::of_answer::<T::Answer>())
            .with_annotations(annotations);
        Entry {
            line,
            prepare: |arguments| {
                let tool: T = serde_json::from_value(Value::Object(arguments))?;
                Ok(Box::new(tool))
            },
        }
    }

    /// Converts an answer to JSON, as the tool's schema lists it.
    fn in_json(&self, answer: &impl Serialize) -> Result<Value, Failure> {
        in_json(answer, self.line.output_schema.as_deref())
    }

    /// Parses the arguments of a call.
    pub(crate) fn prepare(&self, arguments: JsonObject) -> Result<Box<dyn Prepared>, Failure> {
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
        let prepared = match unknown {
            Some(name) => Err(serde::de::Error::custom(unknown_field(&name, &known))),
            None => (self.prepare)(arguments),
        };
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
