//! Templates that give the same key for different values.

use syn::{GenericArgument, Pat, PathArguments, Type};

use crate::form::ungrouped;
use crate::function::Function;
use crate::plan::KeyPart;

/// The warning for a template in which several parameters are texts without quotes: the key does
/// not show where one ends and the next begins. The types of fields and methods are unknown here.
pub(super) fn ambiguous(parts: &[KeyPart], function: &Function) -> Option<String> {
    let mut texts = parts.iter().filter_map(|part| match part {
        KeyPart::Value {
            root,
            accesses,
            spec,
            ..
        } if accesses.is_empty() && !spec.ends_with('?') => {
            let is_text = |parameter: &&syn::PatType| {
                matches!(&*parameter.pat, Pat::Ident(name) if name.ident == *root)
                    && is_text(&parameter.ty)
            };
            function.typed_parameters().find(is_text).and(Some(root))
        }
        _ => None,
    });
    let first = texts.next()?;
    let second = texts.find(|name| *name != first)?;
    Some(format!(
        "`<{first}>` and `<{second}>` are texts that may contain what is between them, as \
         (\"a:b\", \"c\") and (\"a\", \"b:c\"): such calls share a lock. Write `<{first}:?>` \
         to put {first} in quotes"
    ))
}

/// `String`, `str`, a reference or a smart pointer to one of them.
fn is_text(ty: &Type) -> bool {
    match ungrouped(ty) {
        Type::Reference(ty) => is_text(&ty.elem),
        Type::Path(ty) => ty.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            match &last.arguments {
                PathArguments::None => name == "String" || name == "str",
                PathArguments::AngleBracketed(of) => {
                    matches!(&*name, "Cow" | "Box" | "Arc" | "Rc")
                        && of.args.iter().any(
                            |argument| matches!(argument, GenericArgument::Type(ty) if is_text(ty)),
                        )
                }
                PathArguments::Parenthesized(_) => false,
            }
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_texts() {
        for (ty, expected) in [
            ("String", true),
            ("&'a str", true),
            ("&(String)", true),
            ("Cow<'_, str>", true),
            ("std::sync::Arc<Box<str>>", true),
            ("u64", false),
            ("Arc<u64>", false),
            ("Id<String>", false),
            ("(String, String)", false),
        ] {
            let parsed = syn::parse_str(ty).expect(ty);
            assert_eq!(is_text(&parsed), expected, "{ty}");
        }
    }
}
