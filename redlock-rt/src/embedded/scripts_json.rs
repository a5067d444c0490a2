//! `cjson` for scripts: encode, decode, null.

use super::num;
use mlua::{Lua, Table, Value};
use std::fmt::Write;

/// Nested deeper, neither direction goes on.
const MAX_DEPTH: usize = 128;
/// An array with more holes than this is taken for a mistake.
const SPARSE_RATIO: usize = 2;
const SPARSE_SAFE: usize = 10;

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let cjson = lua.create_table()?;
    cjson.raw_set("_NAME", "cjson")?;
    cjson.raw_set("_VERSION", "2.1.0")?;
    cjson.raw_set("null", Value::NULL)?;
    let encode = lua.create_function(|lua, value: Value| {
        let mut out = Vec::new();
        encode(&value, &mut out, 0).map_err(|text| located(lua, &text))?;
        lua.create_string(out)
    })?;
    cjson.raw_set("encode", encode)?;
    let decode = lua.create_function(|lua, text: mlua::BString| {
        let mut reader = Reader {
            lua,
            text: &text,
            at: 0,
        };
        reader.document().map_err(|problem| match problem {
            Problem::Text(text) => located(lua, &text),
            Problem::Lua(error) => error,
        })
    })?;
    cjson.raw_set("decode", decode)?;
    Ok(cjson)
}

/// An error as Lua's own libraries raise it: with the place of the call in front.
fn located(lua: &Lua, text: &str) -> mlua::Error {
    mlua::Error::RuntimeError(super::scripts_lib::caller(lua) + text)
}

fn encode(value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<(), String> {
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
        Value::Integer(value) => encode_number(*value as f64, out)?,
        Value::Number(value) => encode_number(*value, out)?,
        Value::String(text) => encode_string(&text.as_bytes(), out),
        Value::Table(_) if depth >= MAX_DEPTH => {
            return Err(format!("Cannot serialise, excessive depth ({})", depth + 1));
        }
        Value::Table(table) => encode_table(table, out, depth + 1)?,
        other => {
            return Err(format!(
                "Cannot serialise {}: type not supported",
                other.type_name()
            ));
        }
    }
    Ok(())
}

fn encode_number(value: f64, out: &mut Vec<u8>) -> Result<(), String> {
    if !value.is_finite() {
        return Err("Cannot serialise number: must not be NaN or Inf".into());
    }
    out.extend_from_slice(num::format_digits(value, 14).as_bytes());
    Ok(())
}

fn encode_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' | b'/' => out.extend_from_slice(&[b'\\', *byte]),
            8 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// The length of a table that is an array: all its keys are positive whole numbers.
fn array_length(pairs: &[(Value, Value)]) -> Result<Option<usize>, String> {
    let mut max = 0;
    for (key, _) in pairs {
        match key {
            Value::Integer(index) if *index > 0 => {
                max = max.max(usize::try_from(*index).unwrap_or(usize::MAX));
            }
            _ => return Ok(None),
        }
    }
    if max > SPARSE_SAFE && max > pairs.len().saturating_mul(SPARSE_RATIO) {
        return Err("Cannot serialise table: excessively sparse array".into());
    }
    Ok((max > 0).then_some(max))
}

fn encode_table(table: &Table, out: &mut Vec<u8>, depth: usize) -> Result<(), String> {
    let pairs: mlua::Result<Vec<_>> = table.pairs::<Value, Value>().collect();
    let pairs = pairs.map_err(|error| error.to_string())?;
    if let Some(len) = array_length(&pairs)? {
        for index in 1..=len {
            out.push(if index == 1 { b'[' } else { b',' });
            let item = table.raw_get(index).map_err(|error| error.to_string())?;
            encode(&item, out, depth)?;
        }
        out.push(b']');
        return Ok(());
    }
    out.push(b'{');
    for (at, (key, value)) in pairs.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match key {
            Value::String(text) => encode_string(&text.as_bytes(), out),
            Value::Integer(_) | Value::Number(_) => {
                out.push(b'"');
                encode(key, out, depth)?;
                out.push(b'"');
            }
            _ => {
                return Err(
                    "Cannot serialise table: table key must be a number or string".to_owned(),
                );
            }
        }
        out.push(b':');
        encode(value, out, depth)?;
    }
    out.push(b'}');
    Ok(())
}

enum Problem {
    Text(String),
    Lua(mlua::Error),
}

impl From<mlua::Error> for Problem {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

struct Reader<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<Value, Problem> {
        let value = self.value(0)?;
        self.blanks();
        if self.at < self.text.len() {
            return Err(self.expected("the end"));
        }
        Ok(value)
    }

    fn blanks(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expected(&self, what: &str) -> Problem {
        let found = match self.text.get(self.at) {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b'"') => "T_STRING",
            Some(b':') => "T_COLON",
            Some(b',') => "T_COMMA",
            Some(b'0'..=b'9' | b'-') => "T_NUMBER",
            Some(_) => "invalid token",
        };
        let place = self.at + 1;
        Problem::Text(format!(
            "Expected {what} but found {found} at character {place}"
        ))
    }

    fn take(&mut self, byte: u8) -> bool {
        self.blanks();
        let there = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Result<Value, Problem> {
        self.blanks();
        if depth > MAX_DEPTH {
            let text = format!("Found too many nested data structures ({depth})");
            return Err(Problem::Text(text));
        }
        for (word, value) in [
            (&b"null"[..], Value::NULL),
            (b"true", Value::Boolean(true)),
            (b"false", Value::Boolean(false)),
        ] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        match self.text.get(self.at) {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                let text = self.string()?;
                Ok(Value::String(self.lua.create_string(text)?))
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.expected("value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Problem> {
        self.at += 1;
        let table = self.lua.create_table()?;
        if self.take(b'}') {
            return Ok(Value::Table(table));
        }
        loop {
            self.blanks();
            if self.text.get(self.at) != Some(&b'"') {
                return Err(self.expected("object key string"));
            }
            let key = self.string()?;
            if !self.take(b':') {
                return Err(self.expected("colon"));
            }
            let value = self.value(depth + 1)?;
            table.raw_set(self.lua.create_string(key)?, value)?;
            if self.take(b'}') {
                return Ok(Value::Table(table));
            }
            if !self.take(b',') {
                return Err(self.expected("comma or object end"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Problem> {
        self.at += 1;
        let table = self.lua.create_table()?;
        if self.take(b']') {
            return Ok(Value::Table(table));
        }
        for index in 1.. {
            let value = self.value(depth + 1)?;
            table.raw_set(index, value)?;
            if self.take(b']') {
                break;
            }
            if !self.take(b',') {
                return Err(self.expected("comma or array end"));
            }
        }
        Ok(Value::Table(table))
    }

    fn number(&mut self) -> Result<Value, Problem> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let len = rest
            .iter()
            .position(|byte| !is_part(byte))
            .unwrap_or(rest.len());
        let number = std::str::from_utf8(&rest[..len])
            .ok()
            .and_then(|text| text.parse().ok());
        let Some(number) = number else {
            return Err(self.expected("value"));
        };
        self.at += len;
        Ok(Value::Number(number))
    }

    /// Reads a string, its opening quote being next.
    fn string(&mut self) -> Result<Vec<u8>, Problem> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let byte = self.text.get(self.at).copied();
            self.at += 1;
            match byte {
                None => return Err(self.unclosed()),
                Some(b'"') => return Ok(out),
                Some(b'\\') => {
                    let escape = self.text.get(self.at).copied();
                    self.at += 1;
                    match escape {
                        Some(b'b') => out.push(8),
                        Some(b'f') => out.push(12),
                        Some(b'n') => out.push(b'\n'),
                        Some(b'r') => out.push(b'\r'),
                        Some(b't') => out.push(b'\t'),
                        Some(b'u') => {
                            let character = self.unicode().ok_or_else(|| self.bad_escape())?;
                            let mut utf8 = String::new();
                            // Writing to a string cannot fail.
                            let _ = utf8.write_char(character);
                            out.extend_from_slice(utf8.as_bytes());
                        }
                        Some(literal @ (b'"' | b'\\' | b'/')) => out.push(literal),
                        _ => return Err(self.bad_escape()),
                    }
                }
                Some(byte) => out.push(byte),
            }
        }
    }

    fn unclosed(&self) -> Problem {
        let place = self.text.len() + 1;
        Problem::Text(format!(
            "Expected value but found unexpected end of string at character {place}"
        ))
    }

    fn bad_escape(&self) -> Problem {
        let place = self.at - 1;
        Problem::Text(format!(
            "Expected value but found invalid escape code at character {place}"
        ))
    }

    fn unicode(&mut self) -> Option<char> {
        let first = self.hex()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first);
        }
        if self.text.get(self.at..self.at + 2) != Some(b"\\u") {
            return None;
        }
        self.at += 2;
        let second = self.hex().filter(|unit| (0xdc00..0xe000).contains(unit))?;
        char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00))
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = std::str::from_utf8(self.text.get(self.at..self.at + 4)?).ok()?;
        let unit = u32::from_str_radix(digits, 16).ok()?;
        self.at += 4;
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round(text: &str) -> String {
        let lua = Lua::new();
        lua.globals().set("cjson", library(&lua).unwrap()).unwrap();
        let chunk = lua.load("local t = ... return cjson.encode(cjson.decode(t))");
        match chunk.call::<String>(text) {
            Ok(text) => text,
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn documents_survive_a_round() {
        for text in [
            "[1,2.5,\"a\",true,false,null]",
            "{\"a\":{\"b\":[]}}",
            "\"\\u0000\\n\\\"\"",
            "[1e+20,0.1,-3]",
        ] {
            let empty_is_object = text.replace("[]", "{}");
            assert_eq!(round(text), empty_is_object);
        }
        assert_eq!(round("\"\\u00e9\\ud83d\\ude00\""), "\"é😀\"");
        for text in [
            "",
            "[1",
            "{\"a\" 1}",
            "[1,]",
            "\"a",
            "tru",
            "1 2",
            "\"\\ud800\"",
            "-",
        ] {
            assert!(round(text).starts_with("error: "), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[\\[\\]{}\",:0-9a-u\\\\. -]{0,40}") {
            round(&text);
        }
    }
}
