//! JSON schemas of arguments and answers.
//!
//! They are in a form that all kinds of clients accept: without references, without formats of
//! Rust, and without `null` for a field that may be left out.

use std::sync::Arc;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use tine_render::failure::FailureBody;

type Object = Map<String, Value>;

/// Returns a tool's argument schema and its description.
///
/// The descriptions are the type's doc comments.
pub(crate) fn of_arguments<T: JsonSchema>() -> (Arc<Object>, String) {
    let mut schema = plain::<T>();
    schema.entry("properties").or_insert_with(|| json!({}));
    let description = schema.remove("description");
    let description = description
        .as_ref()
        .and_then(Value::as_str)
        .unwrap_or_default();
    let description = description.to_owned();
    // `Entry::prepare` refuses every other argument.
    schema.insert("additionalProperties".to_owned(), json!(false));
    (Arc::new(schema), description)
}

/// Returns a tool's answer schema, which also allows an error.
///
/// Some clients check failed calls against it, too.
pub(crate) fn of_answer<T: JsonSchema>() -> Arc<Object> {
    let mut schema = plain::<T>();
    schema.remove("description");
    let required = schema.remove("required").unwrap_or_else(|| json!([]));
    let mut error = plain::<FailureBody<'static>>();
    error.remove("$schema");
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("error".to_owned(), Value::Object(error));
    }
    schema.insert(
        "anyOf".to_owned(),
        json!([{ "required": required }, { "required": ["error"] }]),
    );
    Arc::new(schema)
}

fn plain<T: JsonSchema>() -> Object {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let schema: Schema = settings.into_generator().into_root_schema_for::<T>();
    let mut value = Value::from(schema);
    simplify(&mut value);
    match value {
        Value::Object(mut object) => {
            object.remove("title");
            object
        }
        _ => Object::new(),
    }
}

fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("format");
            if let Some(Value::String(description)) = object.get_mut("description") {
                *description = unwrapped(description);
            }
            let required: Vec<String> = object
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|name| Some(name.as_str()?.to_owned()))
                .collect();
            if let Some(Value::Object(properties)) = object.get_mut("properties") {
                for (name, property) in properties {
                    if !required.contains(name) {
                        drop_null(property);
                    }
                }
            }
            object.values_mut().for_each(simplify);
            name_values(object);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// Turns a choice of constant words into an `enum`.
///
/// The descriptions of the words become part of the description of the whole.
fn name_values(object: &mut Object) {
    let Some(Value::Array(choices)) = object.get("oneOf") else {
        return;
    };
    let Some(words) = choices
        .iter()
        .map(|choice| choice.get("const")?.as_str())
        .collect::<Option<Vec<&str>>>()
    else {
        return;
    };
    let descriptions = choices.iter().zip(&words).filter_map(|(choice, word)| {
        let description = choice.get("description")?.as_str()?;
        Some(format!("`{word}`: {description}"))
    });
    let descriptions: Vec<String> = object
        .get("description")
        .and_then(Value::as_str)
        .map(str::to_owned)
        .into_iter()
        .chain(descriptions)
        .collect();
    let words = json!(words);
    object.remove("oneOf");
    object.insert("type".to_owned(), json!("string"));
    object.insert("enum".to_owned(), words);
    object.insert("description".to_owned(), json!(descriptions.join(" ")));
}

/// Puts each paragraph on one line. Doc comments break where the source does.
fn unwrapped(text: &str) -> String {
    let paragraphs = text
        .split("\n\n")
        .map(|paragraph| paragraph.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// Removes `null` from the schema of an optional field.
fn drop_null(property: &mut Value) {
    let Some(object) = property.as_object_mut() else {
        return;
    };
    if object.get("default") == Some(&Value::Null) {
        object.remove("default");
    }
    if let Some(Value::Array(kinds)) = object.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [one] = kinds.as_slice() {
            let one = one.clone();
            object.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(kinds)) = object.get_mut("anyOf") {
        kinds.retain(|kind| kind.get("type") != Some(&Value::from("null")));
        if let [Value::Object(one)] = kinds.as_slice() {
            let one = one.clone();
            object.remove("anyOf");
            for (key, value) in one {
                object.entry(key).or_insert(value);
            }
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does a thing.
    #[derive(serde::Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Arguments {
        /// Where.
        path: String,
        #[serde(default)]
        many: Option<u64>,
        how: Option<Winner>,
    }

    #[derive(serde::Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    enum Winner {
        /// Mine.
        Ours,
        /// Yours.
        Theirs,
    }

    #[test]
    fn optional_fields_have_plain_types_and_nothing_refers_elsewhere() {
        let (schema, description) = of_arguments::<Arguments>();
        assert_eq!(description, "Does a thing.");
        assert_eq!(schema["required"], json!(["path"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        let many = &schema["properties"]["many"];
        assert_eq!(*many, json!({"type": "integer", "minimum": 0}));
        let how = &schema["properties"]["how"];
        assert_eq!(
            *how,
            json!({"type": "string", "enum": ["ours", "theirs"], "description": "`ours`: Mine. `theirs`: Yours."})
        );
    }

    #[test]
    fn an_answer_may_also_be_an_error() {
        #[derive(serde::Serialize, JsonSchema)]
        struct Shown {
            size: u64,
        }
        let schema = of_answer::<Shown>();
        assert_eq!(schema["type"], "object");
        assert_eq!(
            schema["anyOf"],
            json!([{"required": ["size"]}, {"required": ["error"]}])
        );
        let error = &schema["properties"]["error"];
        assert_eq!(error["properties"]["code"]["type"], "string");
    }
}
