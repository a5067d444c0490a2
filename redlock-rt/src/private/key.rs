//! Keys, built from borrowed values.

use std::fmt;

use super::ACTION;
use crate::error::Error;

/// What a function locks.
#[derive(Debug)]
pub enum Key {
    /// One name.
    One(String),
    /// All of several names; the list may be empty.
    All(Vec<String>),
}

/// A part of a key's template.
#[derive(Debug, Clone, Copy)]
pub enum Segment<'a> {
    /// Literal text.
    Text(&'a str),
    /// A placeholder, and its value.
    Value(&'a str, fmt::Arguments<'a>),
}

/// Builds a key from a template. An empty or blank value is refused: `order:` would be one lock for
/// all users.
///
/// # Errors
///
/// `BadInput` for such a value, and for one that cannot be displayed.
pub fn key(segments: &[Segment<'_>]) -> Result<Key, Error> {
    written(segments).map(Key::One)
}

/// Builds a key from an expression.
///
/// # Errors
///
/// `BadInput` for a value that is no name, and for one that cannot be displayed.
pub fn key_of(value: fmt::Arguments<'_>) -> Result<Key, Error> {
    let mut key = String::new();
    write(&mut key, value, "the key")?;
    Ok(Key::One(key))
}

/// Builds one list of several keys.
///
/// # Errors
///
/// The first error of the keys.
pub fn keys<const N: usize>(keys: [Result<Key, Error>; N]) -> Result<Key, Error> {
    all(keys.into_iter())
}

/// Builds a key from a list of names.
///
/// # Errors
///
/// The first error of the names.
pub fn list<T: fmt::Display>(names: impl IntoIterator<Item = T>) -> Result<Key, Error> {
    all(names.into_iter().map(|name| key_of(format_args!("{name}"))))
}

fn all(keys: impl Iterator<Item = Result<Key, Error>>) -> Result<Key, Error> {
    let mut names = Vec::new();
    for key in keys {
        match key? {
            Key::One(name) => names.push(name),
            Key::All(more) => names.extend(more),
        }
    }
    Ok(Key::All(names))
}

fn written(segments: &[Segment<'_>]) -> Result<String, Error> {
    let mut key = String::new();
    for segment in segments {
        match *segment {
            Segment::Text(text) => key.push_str(text),
            Segment::Value(placeholder, value) => {
                write(
                    &mut key,
                    value,
                    format_args!("the value of <{placeholder}> in the key"),
                )?;
            }
        }
    }
    Ok(key)
}

fn write(
    key: &mut String,
    value: fmt::Arguments<'_>,
    what: impl fmt::Display,
) -> Result<(), Error> {
    let start = key.len();
    let refuse = |why| Err(Error::bad_input(ACTION, format!("{what} {why}")));
    if fmt::Write::write_fmt(key, value).is_err() {
        return refuse("cannot be displayed");
    }
    if key[start..].trim().is_empty() {
        return refuse("is empty or blank");
    }
    Ok(())
}
