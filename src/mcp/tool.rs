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

/// A tool of the server.
///
/// The fields of the type are its arguments. The doc comments of the type and its fields are the
/// descriptions that a model gets.
pub(crate) trait Tool: DeserializeOwned + JsonSchema + Send + 'static {
    const NAME: &'static str;
    /// Title for people.
    const TITLE: &'static str;
    const HINTS: Hints;
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
    fn call(self: Box<Self>, session: &Session, call: &ToolCall) -> CallToolResult;
}

impl<T: Tool> Prepared for T {
    fn doing(&self) -> Option<String> {
        Tool::doing(self)
    }

    fn call(self: Box<Self>, session: &Session, call: &ToolCall) -> CallToolResult {
        let output = call
            .check()
            .and_then(|()| Tool::call(*self, session, call))
            .and_then(|output| Ok((in_json(&output.answer)?, output.text)));
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

/// Converts an answer to JSON, without fields that are null.
fn in_json(answer: &impl Serialize) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(answer).map_err(|error| {
        Failure::new(ErrorCode::Internal, "the answer cannot be told in JSON")
            .cause(error.to_string())
    })?;
    leave_out_nulls(&mut value);
    Ok(value)
}

fn leave_out_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(leave_out_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(leave_out_nulls),
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
    result.structured_content = in_json(&FailureObject::from(failure)).ok();
    result
}

/// Entry in the list of tools.
pub(crate) struct Entry {
    pub line: ToolLine,
    prepare: fn(JsonObject) -> Result<Box<dyn Prepared>, serde_json::Error>,
}

impl Entry {
    pub(crate) fn of<T: Tool>() -> Entry {
        let (arguments, description) = schema::of_arguments::<T>();
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
        let prepared = (self.prepare)(arguments).and_then(|prepared| match unknown {
            Some(name) => Err(serde::de::Error::custom(format!("unknown field `{name}`"))),
            None => Ok(prepared),
        });
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

/// Cuts `text` to at most `limit` bytes, at a character. Returns whether it was cut.
pub(crate) fn cut(text: &mut String, limit: usize) -> bool {
    if text.len() <= limit {
        return false;
    }
    let end = (0..=limit).rev().find(|&at| text.is_char_boundary(at));
    text.truncate(end.unwrap_or(0));
    true
}
