//! Words for messages: lists of names, and the name that was probably intended.

use std::fmt;

use quote::ToTokens;

/// `a`, `b`, `c`, as code.
pub(crate) fn listed<T: fmt::Display>(names: &[T]) -> String {
    let names = names.iter().map(|name| format!("`{name}`"));
    names.collect::<Vec<_>>().join(", ")
}

/// The one of `names` nearest to `wrong`, if it is near enough to be the intended name.
pub(crate) fn nearest<'a>(
    wrong: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wrong = simple(wrong);
    let limit = (wrong.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (distance(&wrong, &simple(name)), name))
        .filter(|(distance, name)| *distance <= limit && *distance < name.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// What was probably intended: our word for one of other libraries, or the nearest of ours.
pub(crate) fn meant(
    wrong: &str,
    foreign: &[(&str, &'static str)],
    ours: &[&'static str],
) -> Option<&'static str> {
    let simple = simple(wrong);
    let known = foreign.iter().find(|(foreign, _)| *foreign == simple);
    known
        .map(|(_, ours)| *ours)
        .or_else(|| nearest(wrong, ours.iter().copied()))
}

/// A name as one word in lower case.
pub(crate) fn simple(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

/// The hint at the intended name, if there is one.
pub(crate) fn did_you_mean(meant: Option<impl fmt::Display>) -> String {
    meant.map_or_else(String::new, |meant| format!("did you mean `{meant}`? "))
}

/// Tokens nearly as a person writes them.
pub(crate) fn code(tokens: impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for (apart, together) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" :", ":"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" . ", "."),
        (" ,", ","),
        (" < ", "<"),
        (" >", ">"),
        ("& ", "&"),
    ] {
        text = text.replace(apart, together);
    }
    text
}

/// The number of edits from one word to the other: characters inserted, removed, replaced or swapped
/// with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().collect();
    let to: Vec<char> = to.chars().collect();
    let mut rows = vec![(0..=to.len()).collect::<Vec<_>>()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_listed_as_code() {
        assert_eq!(listed::<&str>(&[]), "");
        assert_eq!(listed(&["a"]), "`a`");
        assert_eq!(listed(&["a", "b"]), "`a`, `b`");
    }

    #[test]
    fn near_names_are_found() {
        let names = ["key", "wait", "lease", "max_hold", "renew"];
        for (wrong, meant) in [
            ("kye", "key"),
            ("leese", "lease"),
            ("wiat", "wait"),
            ("WAIT", "wait"),
            ("maxHold", "max_hold"),
            ("maxhold", "max_hold"),
            ("renews", "renew"),
            ("max_helt", "max_hold"),
        ] {
            assert_eq!(nearest(wrong, names), Some(meant), "{wrong}");
        }
        for wrong in ["", "x", "colour", "hold", "on_timeout"] {
            assert_eq!(nearest(wrong, names), None, "{wrong}");
        }
    }

    #[test]
    fn code_is_shown_as_it_is_written() {
        for text in [
            "Path(id)",
            "&str",
            "::a::B<C, D>",
            "Ok(None)",
            "Err(a.b(c))",
            "Req { id }",
        ] {
            let tokens: proc_macro2::TokenStream = text.parse().expect("tokens");
            assert_eq!(code(tokens), text);
        }
    }

    #[test]
    fn each_edit_counts() {
        for (from, edits) in [("keys", 1), ("ky", 1), ("kay", 1), ("kye", 1), ("yke", 2)] {
            assert_eq!(distance(from, "key"), edits, "{from}");
        }
    }

    #[test]
    fn a_short_name_is_not_near_to_everything() {
        assert_eq!(nearest("x", ["a", "b"]), None);
    }

    proptest! {
        #[test]
        fn distance_is_a_metric(a in "[a-c]{0,6}", b in "[a-c]{0,6}") {
            prop_assert_eq!(distance(&a, &a), 0);
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert!(distance(&a, &b) <= a.len().max(b.len()));
            prop_assert_eq!(distance(&a, &b) == 0, a == b);
        }
    }
}
