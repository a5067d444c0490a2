//! Key templates: `"order:<user_id>"`.
//!
//! ```text
//! template    = { text | "<<" | ">>" | placeholder }
//! placeholder = "<" name { "." ( name [ "()" ] | index ) } [ ":" format spec ] ">"
//! ```
//!
//! A pure function over `&str`, without tokens and spans. `check` decides whether a name is a
//! parameter.

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

/// The greatest length of a lock's name in bytes.
const LONGEST: usize = 512;

/// Parses a template; returns the messages for all of its mistakes, if there are any.
pub(crate) fn parse(template: &str) -> Result<Vec<TemplateSegment>, Vec<String>> {
    let mut errors = Vec::new();
    let mut segments = Vec::new();
    let mut text = String::new();
    if template.trim().is_empty() {
        let message = "empty key: it would be one lock for everything; name what is locked, e.g. \
                       `key = \"order:<user_id>\"`";
        return Err(vec![message.to_owned()]);
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
            errors.push("`>` without `<`: write `>>` for a literal `>`".to_owned());
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
                    errors.push(format!(
                        "unclosed `<`: close the placeholder as `<{}>`, or write `<<` for a literal `<`",
                        name_prefix(within)
                    ));
                    rest = &rest[within.len()..];
                }
            }
        }
    }
    text.push_str(rest);
    flush(&mut text, &mut segments);
    let fixed: usize = segments.iter().map(TemplateSegment::fixed_len).sum();
    if fixed > LONGEST {
        errors.push(format!("the name of a lock has at most {LONGEST} bytes"));
    }
    if template.contains('\0') {
        errors.push("the name of a lock cannot contain a NUL character".to_owned());
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

fn placeholder(inner: &str) -> Result<Placeholder, String> {
    if inner.is_empty() {
        return Err(
            "empty placeholder `<>`: name a parameter, e.g. `<user_id>`, or write `<<>>` for a \
             literal `<>`"
                .to_owned(),
        );
    }
    if inner.contains("::") {
        return Err(format!(
            "path in placeholder `<{inner}>`: only parameters, their fields and their methods \
             without arguments can be part of a key"
        ));
    }
    let (text, spec) = inner.split_once(':').unwrap_or((inner, ""));
    if text.len() < inner.len() && !spec::is_valid(spec) {
        return Err(format!(
            "`{spec}` in placeholder `<{inner}>` is no format that a key can have: it is a fixed \
             one as in `format!`, e.g. `08x`, `?`, `.3`, without `<`, `>` and `$`"
        ));
    }
    let mut cursor = Cursor { rest: text, inner };
    let root = cursor.name()?;
    if cursor.rest.starts_with('(') {
        return Err(format!(
            "function call in placeholder `<{inner}>`: only methods of a parameter can be called \
             in a key, e.g. `<user.id()>`"
        ));
    }
    let mut accesses = Vec::new();
    while let Some(next) = cursor.next() {
        if next != '.' {
            return Err(cursor.unexpected(next));
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

impl<'a> Cursor<'a> {
    fn next(&mut self) -> Option<char> {
        let mut chars: Chars<'_> = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    fn word(&mut self) -> &'a str {
        let raw = if self.rest.starts_with("r#") { 2 } else { 0 };
        let end = self.rest[raw..]
            .find(|c| !is_name_char(c))
            .unwrap_or(self.rest.len() - raw);
        let (word, rest) = self.rest.split_at(raw + end);
        self.rest = rest;
        word
    }

    /// A name, without its `r#`.
    fn name(&mut self) -> Result<String, String> {
        let next = self.rest.chars().next();
        let word = self.word();
        let name = word.strip_prefix("r#").unwrap_or(word);
        if name.starts_with(|c: char| c.is_alphabetic() || c == '_') && name != "_" {
            return Ok(name.to_owned());
        }
        match next {
            Some(found) if word.is_empty() && found != '.' => Err(self.unexpected(found)),
            _ => Err(self.no_name(word)),
        }
    }

    /// Reads the access after a dot.
    fn access(&mut self) -> Result<Access, String> {
        let inner = self.inner;
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            let index = self.word();
            return match index.parse() {
                Ok(number) => Ok(Access::Index(number)),
                Err(_) if index.chars().all(|c| c.is_ascii_digit()) => {
                    Err(format!("no such field in placeholder `<{inner}>`"))
                }
                Err(_) => Err(self.no_name(index)),
            };
        }
        let name = self.name()?;
        let Some(arguments) = self.rest.strip_prefix('(') else {
            return Ok(Access::Field(name));
        };
        let Some(rest) = arguments.strip_prefix(')') else {
            return Err(format!(
                "arguments in placeholder `<{inner}>`: only methods without arguments can be \
                 called in a key"
            ));
        };
        self.rest = rest;
        Ok(Access::Method(name))
    }

    fn no_name(&self, found: &str) -> String {
        let inner = self.inner;
        match found {
            "" => format!("name missing in placeholder `<{inner}>`"),
            _ => format!("`{found}` in placeholder `<{inner}>` is no name"),
        }
    }

    fn unexpected(&self, found: char) -> String {
        let inner = self.inner;
        match found.is_whitespace() {
            true => format!("blank in placeholder `<{inner}>`: write it without"),
            false => format!(
                "unexpected `{found}` in placeholder `<{inner}>`: expected `<parameter>`, \
                 `<parameter.field>`, `<parameter.method()>` or one of these with a format, \
                 `<parameter:08x>`"
            ),
        }
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
