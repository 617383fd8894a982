//! Checks each line of `--json` against `docs/guide/json/varve.schema.json`. It supports the
//! keywords of JSON Schema that are used there, and refuses every other one. It is stricter than
//! the schema in one way: an unlisted field is an error.

use std::sync::LazyLock;

use serde_json::{Map, Value};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/json/varve.schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
});

/// Returns the types of lines in the schema.
pub fn types() -> Vec<String> {
    let listed = SCHEMA["oneOf"].as_array().unwrap();
    let name = |one: &Value| one["$ref"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    listed.iter().map(name).collect()
}

/// Panics if the schema does not allow a line.
#[track_caller]
pub fn check_line(line: &Value) {
    let name = line["type"].as_str().unwrap_or_else(|| panic!("it has no type: {line}"));
    assert!(
        types().iter().any(|known| known == name),
        "docs/guide/json/varve.schema.json has no type {name}: {line}"
    );
    if let Err(wrong) = check(line, &SCHEMA["$defs"][name]) {
        panic!("not as docs/guide/json/varve.schema.json says: {wrong}\n{line}");
    }
}

fn check(value: &Value, schema: &Value) -> Result<(), String> {
    let schema = schema.as_object().unwrap();
    for (keyword, wanted) in schema {
        let is_right = match keyword.as_str() {
            "description" | "format" | "properties" | "additionalProperties" | "minimum" | "items" => true,
            "required" => {
                let mut names = wanted.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                !value.is_object() || names.all(|name| value.get(name).is_some())
            }
            "const" => value == wanted,
            "enum" => wanted.as_array().unwrap().contains(value),
            "type" => match wanted {
                Value::Array(any) => any.iter().any(|wanted| is_a(value, wanted)),
                one => is_a(value, one),
            },
            "$ref" => {
                let name = wanted.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                return check(value, &SCHEMA["$defs"][name]);
            }
            other => panic!("the checker does not know {other:?}"),
        };
        if !is_right {
            return Err(format!("{keyword} {wanted}: {value}"));
        }
    }
    let is_below = |least: &Value| value.as_f64().is_some_and(|number| number < least.as_f64().unwrap());
    if schema.get("minimum").is_some_and(is_below) {
        return Err(format!("{value} is too small"));
    }
    if schema.get("format").is_some_and(|format| format == "date-time") && !is_time(value) {
        return Err(format!("{value} is no time"));
    }
    if let (Value::Array(values), Some(items)) = (value, schema.get("items")) {
        values.iter().try_for_each(|value| check(value, items))?;
    }
    if let (Value::Object(fields), Some(properties)) = (value, schema.get("properties")) {
        let is_open = schema.get("additionalProperties") == Some(&Value::Bool(true));
        check_fields(fields, properties, is_open)?;
    }
    Ok(())
}

fn check_fields(fields: &Map<String, Value>, properties: &Value, is_open: bool) -> Result<(), String> {
    for (name, value) in fields {
        match properties.get(name) {
            Some(schema) => check(value, schema).map_err(|wrong| format!("{name}: {wrong}"))?,
            None if is_open => {}
            None => return Err(format!("the field {name} is not listed")),
        }
    }
    Ok(())
}

fn is_a(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("the checker does not know {other:?}"),
    }
}

/// Returns true for a time of RFC 3339 in UTC, or null. Only the characters are checked, because
/// years may have more than four digits.
fn is_time(value: &Value) -> bool {
    let Some(text) = value.as_str() else { return value.is_null() };
    text.ends_with('Z')
        && text.contains('T')
        && text.bytes().all(|byte| byte.is_ascii_digit() || b"-+:.TZ".contains(&byte))
}
