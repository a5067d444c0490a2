//! Key templates: `"order:<user_id>"`.
//!
//! ```text
//! template    = { text | "<<" | ">>" | placeholder }
//! placeholder = "<" name { "." ( name [ "()" ] | index ) } [ ":" format spec ] ">"
//! ```
//!
//! A pure function over `&str`, without tokens and spans. `check` decides whether a name is a
//! parameter.

use std::fmt;
use std::str::Chars;

/// A part of a key. Adjacent text is one segment, and no segment is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplateSegment {
    Text(String),
    Placeholder(Placeholder),
}

/// `<user.id():08x>`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placeholder {
    /// As written between the brackets, without the format spec: `user.id()`.
    pub(crate) text: String,
    /// The parameter, or `self`: `user`.
    pub(crate) root: String,
    pub(crate) accesses: Vec<Access>,
    /// `08x`, or empty.
    pub(crate) spec: String,
}

/// One step from a value into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    Field(String),
    Index(u32),
    Method(String),
}

/// Why a text is not a template. `within` is the placeholder as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplateError {
    EmptyKey,
    Nul,
    /// More text than the name of a lock may have, even without the values of the placeholders.
    TooLong,
    Unclosed {
        within: String,
    },
    UnmatchedClose,
    EmptyPlaceholder,
    NoName {
        within: String,
        found: String,
    },
    Path {
        within: String,
    },
    Arguments {
        within: String,
    },
    Call {
        within: String,
    },
    BigIndex {
        within: String,
    },
    Unexpected {
        within: String,
        found: char,
    },
    Spec {
        within: String,
        spec: String,
    },
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LITERAL: &str = "for a literal";
        match self {
            Self::EmptyKey => write!(
                f,
                "empty key: it would be one lock for everything; name what is locked, e.g. \
                 `key = \"order:<user_id>\"`"
            ),
            Self::Nul => write!(f, "the name of a lock cannot contain a NUL character"),
            Self::TooLong => write!(f, "the name of a lock has at most {LONGEST} bytes"),
            Self::Unclosed { within } => write!(
                f,
                "unclosed `<`: close the placeholder as `<{within}>`, or write `<<` {LITERAL} `<`"
            ),
            Self::UnmatchedClose => {
                write!(f, "`>` without `<`: write `>>` {LITERAL} `>`")
            }
            Self::EmptyPlaceholder => write!(
                f,
                "empty placeholder `<>`: name a parameter, e.g. `<user_id>`, or write `<<>>` \
                 {LITERAL} `<>`"
            ),
            Self::NoName { within, found } if found.is_empty() => {
                write!(f, "name missing in placeholder `<{within}>`")
            }
            Self::NoName { within, found } => {
                write!(f, "`{found}` in placeholder `<{within}>` is no name")
            }
            Self::Path { within } => write!(
                f,
                "path in placeholder `<{within}>`: only parameters, their fields and their methods \
                 without arguments can be part of a key"
            ),
            Self::Arguments { within } => write!(
                f,
                "arguments in placeholder `<{within}>`: only methods without arguments can be \
                 called in a key"
            ),
            Self::Call { within } => write!(
                f,
                "function call in placeholder `<{within}>`: only methods of a parameter can be \
                 called in a key, e.g. `<user.id()>`"
            ),
            Self::BigIndex { within } => write!(f, "no such field in placeholder `<{within}>`"),
            Self::Unexpected { within, found } if found.is_whitespace() => {
                write!(f, "blank in placeholder `<{within}>`: write it without")
            }
            Self::Unexpected { within, found } => write!(
                f,
                "unexpected `{found}` in placeholder `<{within}>`: expected `<parameter>`, \
                 `<parameter.field>`, `<parameter.method()>` or one of these with a format, \
                 `<parameter:08x>`"
            ),
            Self::Spec { within, spec } => write!(
                f,
                "`{spec}` in placeholder `<{within}>` is no format that a key can have: it is a \
                 fixed one as in `format!`, e.g. `08x`, `?`, `.3`, without `<`, `>` and `$`"
            ),
        }
    }
}

/// The greatest length of a lock's name in bytes.
const LONGEST: usize = 512;

/// Parses a template; returns all of its mistakes, if there are any.
pub(crate) fn parse(template: &str) -> Result<Vec<TemplateSegment>, Vec<TemplateError>> {
    let mut errors = Vec::new();
    let mut segments = Vec::new();
    let mut text = String::new();
    if template.trim().is_empty() {
        return Err(vec![TemplateError::EmptyKey]);
    }
    let mut rest = template;
    while let Some(at) = rest.find(['<', '>']) {
        text.push_str(&rest[..at]);
        let bracket = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(bracket) {
            text.push_str(bracket);
            rest = after;
        } else if bracket == ">" {
            errors.push(TemplateError::UnmatchedClose);
        } else {
            match rest.find(['<', '>']) {
                Some(end) if rest[end..].starts_with('>') => {
                    match placeholder(&rest[..end]) {
                        Ok(placeholder) => {
                            flush(&mut text, &mut segments);
                            segments.push(TemplateSegment::Placeholder(placeholder));
                        }
                        Err(error) => errors.push(error),
                    }
                    rest = &rest[end + 1..];
                }
                end => {
                    let within = &rest[..end.unwrap_or(rest.len())];
                    errors.push(TemplateError::Unclosed {
                        within: name_prefix(within).to_owned(),
                    });
                    rest = &rest[within.len()..];
                }
            }
        }
    }
    text.push_str(rest);
    flush(&mut text, &mut segments);
    let fixed: usize = segments.iter().map(TemplateSegment::fixed_len).sum();
    if fixed > LONGEST {
        errors.push(TemplateError::TooLong);
    }
    if template.contains('\0') {
        errors.push(TemplateError::Nul);
    }
    if errors.is_empty() {
        Ok(segments)
    } else {
        Err(errors)
    }
}

impl TemplateSegment {
    fn fixed_len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Placeholder(_) => 0,
        }
    }
}

fn flush(text: &mut String, segments: &mut Vec<TemplateSegment>) {
    if !text.is_empty() {
        segments.push(TemplateSegment::Text(std::mem::take(text)));
    }
}

/// Guesses the intended end of an unclosed placeholder: `user` of `user:rest`.
fn name_prefix(text: &str) -> &str {
    let end = text
        .find(|c| !(is_name_char(c) || c == '.'))
        .unwrap_or(text.len());
    match text[..end].trim_end_matches('.') {
        "" => "parameter",
        name => name,
    }
}

fn placeholder(inner: &str) -> Result<Placeholder, TemplateError> {
    let within = || inner.to_owned();
    if inner.is_empty() {
        return Err(TemplateError::EmptyPlaceholder);
    }
    if inner.contains("::") {
        return Err(TemplateError::Path { within: within() });
    }
    let (text, spec) = inner.split_once(':').unwrap_or((inner, ""));
    if text.len() < inner.len() && !spec::is_valid(spec) {
        return Err(TemplateError::Spec {
            within: within(),
            spec: spec.to_owned(),
        });
    }
    let mut cursor = Cursor { rest: text, inner };
    let root = cursor.name()?;
    if cursor.rest.starts_with('(') {
        return Err(TemplateError::Call { within: within() });
    }
    let mut accesses = Vec::new();
    while let Some(next) = cursor.next() {
        if next != '.' {
            return Err(TemplateError::Unexpected {
                within: within(),
                found: next,
            });
        }
        accesses.push(cursor.access()?);
    }
    Ok(Placeholder {
        text: text.to_owned(),
        root,
        accesses,
        spec: spec.to_owned(),
    })
}

/// The unread rest of a placeholder.
struct Cursor<'a> {
    rest: &'a str,
    inner: &'a str,
}

impl Cursor<'_> {
    fn next(&mut self) -> Option<char> {
        let mut chars: Chars<'_> = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    fn word(&mut self) -> &str {
        let raw = if self.rest.starts_with("r#") { 2 } else { 0 };
        let end = self.rest[raw..]
            .find(|c| !is_name_char(c))
            .unwrap_or(self.rest.len() - raw);
        let (word, rest) = self.rest.split_at(raw + end);
        self.rest = rest;
        word
    }

    /// A name, without its `r#`.
    fn name(&mut self) -> Result<String, TemplateError> {
        let within = self.inner.to_owned();
        let next = self.rest.chars().next();
        let word = self.word().to_owned();
        let name = word.strip_prefix("r#").unwrap_or(&word);
        if name.starts_with(|c: char| c.is_alphabetic() || c == '_') && name != "_" {
            return Ok(name.to_owned());
        }
        match next {
            Some(found) if word.is_empty() && found != '.' => {
                Err(TemplateError::Unexpected { within, found })
            }
            _ => Err(TemplateError::NoName {
                within,
                found: word,
            }),
        }
    }

    /// Reads the access after a dot.
    fn access(&mut self) -> Result<Access, TemplateError> {
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            let within = self.inner.to_owned();
            let index = self.word();
            return match index.parse() {
                Ok(number) => Ok(Access::Index(number)),
                Err(_) if index.chars().all(|c| c.is_ascii_digit()) => {
                    Err(TemplateError::BigIndex { within })
                }
                Err(_) => Err(TemplateError::NoName {
                    within,
                    found: index.to_owned(),
                }),
            };
        }
        let name = self.name()?;
        let Some(arguments) = self.rest.strip_prefix('(') else {
            return Ok(Access::Field(name));
        };
        let Some(rest) = arguments.strip_prefix(')') else {
            return Err(TemplateError::Arguments {
                within: self.inner.to_owned(),
            });
        };
        self.rest = rest;
        Ok(Access::Method(name))
    }
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Format specs: those of `format!` that need nothing but the value.
mod spec {
    /// The width and the precision of a part: no key can be longer.
    const WIDEST: u32 = super::LONGEST as u32;

    /// `[[fill]"^"][sign]["#"]["0"][width]["." precision][type]`, with at least one part.
    pub(super) fn is_valid(spec: &str) -> bool {
        let rest = aligned(spec);
        let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
        let rest = rest.strip_prefix('#').unwrap_or(rest);
        let Some((_, rest)) = number(rest) else {
            return false;
        };
        let rest = match rest.strip_prefix('.').map(number) {
            None => rest,
            Some(Some((true, rest))) => rest,
            Some(_) => return false,
        };
        !spec.is_empty()
            && matches!(
                rest,
                "" | "?" | "x?" | "X?" | "x" | "X" | "o" | "b" | "e" | "E"
            )
    }

    fn aligned(spec: &str) -> &str {
        let mut chars = spec.chars();
        match chars.next() {
            Some(fill) if chars.as_str().starts_with('^') && !"{}<>".contains(fill) => {
                &chars.as_str()[1..]
            }
            Some('^') => chars.as_str(),
            _ => spec,
        }
    }

    /// Whether there are digits, and the rest after them. `None`: the number is too large.
    fn number(text: &str) -> Option<(bool, &str)> {
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        let fits = digits.is_empty() || digits.parse::<u32>().is_ok_and(|n| n <= WIDEST);
        fits.then_some((end > 0, rest))
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
