//! The options of the attribute, each separately: its name and its values. Rules that concern several
//! options, or the function, are in `check`.

mod fsync;
mod key;
mod kind;
mod names;
mod replicas;
mod strategy;
mod time;
mod value;

use proc_macro2::{Ident, Span, TokenStream};
use syn::ext::IdentExt as _;
use syn::parse::discouraged::Speculative as _;
use syn::parse::{ParseStream, Parser as _};
use syn::spanned::Spanned as _;
use syn::{Expr, LitStr, Path, Token};

use crate::errors::Errors;
use crate::plan::{
    Fallback, FsyncArg, LockKindArg, OnLostArg, RenewArg, ReplicaAckArg, TimeArg, Wait,
};

pub(crate) use self::key::{KeyArg, KeysArg};

/// A value and where it was written.
#[derive(Debug, Clone)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    /// The place of the first token, if there are several.
    pub(crate) span: Span,
}

/// The options as they were set.
#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) key: OptionSlot<KeyArg>,
    pub(crate) keys: OptionSlot<KeysArg>,
    pub(crate) kind: OptionSlot<LockKindArg>,
    pub(crate) once: OptionSlot<Expr>,
    pub(crate) wait: OptionSlot<Wait>,
    pub(crate) lease: OptionSlot<TimeArg>,
    pub(crate) renew: OptionSlot<RenewArg>,
    pub(crate) max_hold: OptionSlot<TimeArg>,
    pub(crate) min_hold: OptionSlot<TimeArg>,
    pub(crate) replica_ack: OptionSlot<ReplicaAckArg>,
    pub(crate) fsync: OptionSlot<FsyncArg>,
    pub(crate) client: OptionSlot<Expr>,
    pub(crate) owner: OptionSlot<Expr>,
    pub(crate) on_timeout: OptionSlot<Fallback>,
    pub(crate) on_unavailable: OptionSlot<Fallback>,
    pub(crate) on_lost: OptionSlot<OnLostArg>,
    pub(crate) map_err: OptionSlot<Expr>,
    pub(crate) when: OptionSlot<Expr>,
    pub(crate) guard: OptionSlot<Ident>,
    pub(crate) token: OptionSlot<Ident>,
    pub(crate) name: OptionSlot<LitStr>,
    pub(crate) blocking: OptionSlot<bool>,
    pub(crate) krate: OptionSlot<Path>,
}

/// The place of one option.
#[derive(Debug)]
pub(crate) enum OptionSlot<T> {
    Unset,
    /// Set to a value that was reported as a mistake. So the option is not missing, and a second one
    /// is a repetition.
    Invalid,
    Set(Spanned<T>),
}

// A derived impl would require `T: Default`.
#[allow(clippy::derivable_impls)]
impl<T> Default for OptionSlot<T> {
    fn default() -> Self {
        Self::Unset
    }
}

impl<T> OptionSlot<T> {
    pub(crate) fn get(&self) -> Option<&Spanned<T>> {
        match self {
            Self::Set(value) => Some(value),
            Self::Unset | Self::Invalid => None,
        }
    }

    pub(crate) fn set(self) -> Option<Spanned<T>> {
        match self {
            Self::Set(value) => Some(value),
            Self::Unset | Self::Invalid => None,
        }
    }

    pub(crate) fn value(self) -> Option<T> {
        self.set().map(|set| set.value)
    }

    pub(crate) fn span(&self) -> Option<Span> {
        self.get().map(|set| set.span)
    }

    pub(crate) fn is_unset(&self) -> bool {
        matches!(self, Self::Unset)
    }
}

/// A slot for a value of any type.
trait AnySlot {
    /// Takes the value of the option called `name`, unless it has been set before.
    fn fill(&mut self, name: &Ident, value: Expr, errors: &mut Errors);

    /// Notes a value that cannot be read, which is reported as a mistake.
    fn spoil(&mut self);
}

/// A slot and the function that reads its value.
struct Reader<'a, T, F>(&'a mut OptionSlot<T>, F);

impl<T, F> AnySlot for Reader<'_, T, F>
where
    F: Fn(&Ident, Expr, &mut Errors) -> Option<T>,
{
    fn fill(&mut self, name: &Ident, value: Expr, errors: &mut Errors) {
        let Self(slot, read) = self;
        if !slot.is_unset() {
            errors.at(
                name.span(),
                format_args!("`{name}` is set twice: leave one of them out"),
            );
            return;
        }
        if let Some(at) = value::awaits(name, &value) {
            errors.at(
                at,
                format_args!(
                    "`{name}` cannot await: it is evaluated before the lock is waited for; await \
                     what it needs before the call, and pass it on as a parameter"
                ),
            );
            **slot = OptionSlot::Invalid;
            return;
        }
        let span = value.span();
        **slot = match read(name, value::bare(value), errors) {
            Some(value) => OptionSlot::Set(Spanned { value, span }),
            None => OptionSlot::Invalid,
        };
    }

    fn spoil(&mut self) {
        if self.0.is_unset() {
            *self.0 = OptionSlot::Invalid;
        }
    }
}

impl Args {
    /// Reads the tokens between the parentheses, as far as they can be read.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let read = |input: ParseStream<'_>| {
            while !input.is_empty() {
                if let Err(error) = args.parse_option(input, errors) {
                    errors.push(error);
                    skip_to_comma(input);
                }
                if !input.is_empty()
                    && let Err(error) = input.parse::<Token![,]>()
                {
                    errors.push(error);
                    skip_to_comma(input);
                    let _ = input.parse::<Token![,]>();
                }
            }
            Ok(())
        };
        if let Err(error) = read.parse2(tokens) {
            errors.push(error);
        }
        args
    }

    /// `name = value`
    fn parse_option(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        if input.peek(LitStr) {
            let key: LitStr = input.parse()?;
            let message = format!("options have names: write `key = {:?}`", key.value());
            // One message for one mistake: the key is given, only its name is missing.
            self.key = OptionSlot::Invalid;
            return Err(syn::Error::new(key.span(), message));
        }
        let name = input.call(Ident::parse_any)?;
        let text = name.unraw().to_string();
        let Some(mut slot) = self.slot(&text) else {
            skip_to_comma(input);
            return Err(names::unknown(&name));
        };
        let has_value = input.peek(Token![=]) && {
            input.parse::<Token![=]>()?;
            !input.is_empty() && !input.peek(Token![,])
        };
        if !has_value {
            skip_to_comma(input);
            slot.spoil();
            return Err(names::without_value(&name));
        }
        // Separate from the rest, since tokens that are left over in brackets would be one more mistake.
        let aside = input.fork();
        match aside.parse() {
            Ok(value) => slot.fill(&name, value, errors),
            Err(error) => {
                slot.spoil();
                return Err(names::unreadable(&name, &error));
            }
        }
        input.advance_to(&aside);
        Ok(())
    }

    /// The place of the option called `name`. To add one: a field, a line here, its name in
    /// `OPTIONS`.
    fn slot(&mut self, name: &str) -> Option<Box<dyn AnySlot + '_>> {
        Some(match name {
            "key" => Box::new(Reader(&mut self.key, key::key)),
            "keys" => Box::new(Reader(&mut self.keys, key::keys)),
            "kind" => Box::new(Reader(&mut self.kind, kind::kind)),
            "once" => Box::new(Reader(&mut self.once, value::fire)),
            "wait" => Box::new(Reader(&mut self.wait, time::wait)),
            "lease" => Box::new(Reader(&mut self.lease, time::lease)),
            "renew" => Box::new(Reader(&mut self.renew, time::renew)),
            "max_hold" => Box::new(Reader(&mut self.max_hold, time::max_hold)),
            "min_hold" => Box::new(Reader(&mut self.min_hold, time::min_hold)),
            "replica_ack" => Box::new(Reader(&mut self.replica_ack, replicas::replica_ack)),
            "fsync" => Box::new(Reader(&mut self.fsync, fsync::fsync)),
            "client" => Box::new(Reader(&mut self.client, value::any)),
            "owner" => Box::new(Reader(&mut self.owner, value::owner)),
            "on_timeout" => Box::new(Reader(&mut self.on_timeout, strategy::fallback)),
            "on_unavailable" => Box::new(Reader(&mut self.on_unavailable, strategy::fallback)),
            "on_lost" => Box::new(Reader(&mut self.on_lost, strategy::on_lost)),
            "map_err" => Box::new(Reader(&mut self.map_err, value::function)),
            "when" => Box::new(Reader(&mut self.when, value::condition)),
            "guard" => Box::new(Reader(&mut self.guard, value::binding)),
            "token" => Box::new(Reader(&mut self.token, value::binding)),
            "name" => Box::new(Reader(&mut self.name, value::label)),
            "blocking" => Box::new(Reader(&mut self.blocking, value::switch)),
            "crate" => Box::new(Reader(&mut self.krate, value::path)),
            _ => return None,
        })
    }
}

fn skip_to_comma(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        let _ = input.parse::<proc_macro2::TokenTree>();
    }
}

#[cfg(test)]
mod tests;
