//! The code that acquires the lock, with the options of the function.

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Expr, LitStr};

use super::key::keys;
use super::{ExpansionNames, relocated};
use crate::function::Function;
use crate::plan::{FsyncArg, LockKindArg, OnLostArg, Plan, RenewArg, ReplicaAckArg, TimeArg, Wait};

/// An expression for the call that acquires the lock.
pub(super) fn call(plan: &Plan, function: &Function, names: &ExpansionNames) -> TokenStream {
    let here = Span::mixed_site();
    let private = &names.private;
    let label = label(plan, function, private);
    let key = keys(&plan.keys, names);
    let client = client(plan, private);
    let wait = plan.wait.as_ref().map(|wait| self::wait(wait, private));
    let on_lost = on_lost(plan.on_lost, private);
    let options = [
        time("lease", plan.lease.as_ref(), private),
        plan.renew.as_ref().map(|renew| self::renew(renew, private)),
        time("max_hold", plan.max_hold.as_ref(), private),
        time("min_hold", plan.min_hold.as_ref(), private),
        plan.replica_ack
            .as_ref()
            .map(|ack| replica_ack(ack, private)),
        plan.fsync.as_ref().map(|fsync| self::fsync(fsync, private)),
        plan.owner.as_ref().map(|owner| self::owner(owner, private)),
    ];
    let options = options.into_iter().flatten();
    let options = quote_spanned!(here=> #private::LockOptions::new() #(#options)*);
    let kind = match &plan.once {
        Some(fire) => {
            let there = relocated(private, here.located_at(fire.span()));
            quote_spanned!(here=> Once(#there::fire(#fire)))
        }
        None => kind(&plan.kind, private),
    };
    quote_spanned! {here=>
        #private::AttributeCall::new(#label, #key, #client, #options) #wait #on_lost .enter(#private::Primitive::#kind)
    }
}

fn label(plan: &Plan, function: &Function, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    if let Some(name) = &plan.name {
        return quote_spanned!(here=> #name);
    }
    let name = LitStr::new(&format!("::{}", function.sig.ident.unraw()), here);
    quote_spanned! {here=>
        #private::core::concat!(#private::core::module_path!(), #name)
    }
}

/// Every value that dereferences to a client is accepted: `Client`, `Arc<Client>`, a static
/// `LazyLock<Client>`. The block ends the borrows of the expression before the first await.
fn client(plan: &Plan, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let option = quote_spanned!(here=> #private::core::option::Option);
    let Some(client) = &plan.client else {
        return quote_spanned!(here=> #private::client(#option::None));
    };
    let krate = match &plan.krate {
        Some(krate) => quote_spanned!(here=> #krate),
        None => quote_spanned!(here=> ::redlock_rt),
    };
    let (referred, client) = referred(client, &quote_spanned!(here=> #krate::Client));
    quote_spanned!(here=> { #referred #private::client(#option::Some(#client)) })
}

fn owner(owner: &Expr, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let ty = quote_spanned!(here=> #private::Owner);
    let (referred, owner) = referred(owner, &ty);
    quote_spanned!(here=> .owner(&{ #referred #private::core::clone::Clone::clone(#owner) }))
}

/// Statements that turn a value that dereferences to a `ty` into a reference, and its name. Done in
/// two steps: otherwise the expected type would decide what a generic call returns.
fn referred(value: &Expr, ty: &TokenStream) -> (TokenStream, Ident) {
    let here = Span::mixed_site();
    let at_value = here.located_at(value.span());
    let ty = relocated(ty, at_value);
    let reference = Ident::new("reference", at_value);
    let statements = quote_spanned! {here=>
        let reference = &#value;
        let reference: &#ty = #reference;
    };
    (statements, Ident::new("reference", here))
}

fn wait(wait: &Wait, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let option = quote_spanned!(here=> #private::core::option::Option);
    match wait {
        Wait::Forever => quote_spanned!(here=> .wait(#option::None)),
        Wait::Literal(wait) => {
            let wait = millis(*wait, private);
            quote_spanned!(here=> .wait(#option::Some(#wait)))
        }
        Wait::Expr(wait) => {
            let wait = typed(wait, private);
            quote_spanned!(here=> .wait(#option::Some(#wait)))
        }
    }
}

fn time(setter: &str, time: Option<&TimeArg>, private: &TokenStream) -> Option<TokenStream> {
    let here = Span::mixed_site();
    let setter = Ident::new(setter, here);
    let time = match time? {
        TimeArg::Literal(time) => millis(*time, private),
        TimeArg::Expr(time) => typed(time, private),
    };
    Some(quote_spanned!(here=> .#setter(#time)))
}

fn renew(renew: &RenewArg, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    match renew {
        RenewArg::Bool(renew) => quote_spanned!(here=> .renew(#private::renew(#renew))),
        RenewArg::Every(every) => {
            let every = millis(*every, private);
            quote_spanned!(here=> .renew(#private::renew(#every)))
        }
        RenewArg::Expr(renew) => {
            let at_renew = here.located_at(renew.span());
            quote_spanned!(at_renew=> .renew({ let renew = #private::renew(#renew); renew }))
        }
    }
}

fn replica_ack(ack: &ReplicaAckArg, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let ack = match ack {
        ReplicaAckArg::None => quote_spanned!(here=> #private::ReplicaAck::None),
        ReplicaAckArg::AtLeast(replicas) => {
            quote_spanned!(here=> #private::ReplicaAck::AtLeast(#replicas))
        }
        ReplicaAckArg::Majority => quote_spanned!(here=> #private::ReplicaAck::Majority),
        ReplicaAckArg::All => quote_spanned!(here=> #private::ReplicaAck::All),
        ReplicaAckArg::Expr(ack) => of_type("ReplicaAck", ack, private),
    };
    quote_spanned!(here=> .replica_ack(#ack))
}

fn fsync(fsync: &FsyncArg, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let fsync = match fsync {
        FsyncArg::None => quote_spanned!(here=> #private::Fsync::None),
        FsyncArg::Replicas => quote_spanned!(here=> #private::Fsync::Replicas),
        FsyncArg::All => quote_spanned!(here=> #private::Fsync::All),
        FsyncArg::Expr(fsync) => of_type("Fsync", fsync, private),
    };
    quote_spanned!(here=> .fsync(#fsync))
}

/// The value of an expression that must have one of our types.
fn of_type(ty: &str, value: &Expr, private: &TokenStream) -> TokenStream {
    let at_value = Span::mixed_site().located_at(value.span());
    let (private, ty) = (relocated(private, at_value), Ident::new(ty, at_value));
    quote_spanned!(at_value=> { let value: #private::#ty = #value; value })
}

fn on_lost(on_lost: OnLostArg, private: &TokenStream) -> Option<TokenStream> {
    let here = Span::mixed_site();
    match on_lost {
        OnLostArg::Cancel => None,
        OnLostArg::Finish => Some(quote_spanned!(here=> .on_lost(#private::OnLost::Finish))),
        OnLostArg::ErrorAfter => {
            Some(quote_spanned!(here=> .on_lost(#private::OnLost::ErrorAfter)))
        }
    }
}

fn kind(kind: &LockKindArg, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let lock = |kind| quote_spanned!(here=> Lock(#private::LockKind::#kind));
    match kind {
        LockKindArg::Reentrant => lock(quote_spanned!(here=> Reentrant)),
        LockKindArg::Fair => lock(quote_spanned!(here=> Fair)),
        LockKindArg::Read => lock(quote_spanned!(here=> Read)),
        LockKindArg::Write => lock(quote_spanned!(here=> Write)),
        LockKindArg::Fenced => lock(quote_spanned!(here=> Fenced)),
        LockKindArg::Spin => lock(quote_spanned!(here=> Spin)),
        LockKindArg::Semaphore { limit, take } => {
            let u32 = quote_spanned!(here=> #private::core::primitive::u32);
            let count = |count: &Expr| {
                let at_count = here.located_at(count.span());
                let u32 = relocated(&u32, at_count);
                quote_spanned!(at_count=> { let count: #u32 = #count; count })
            };
            let limit = count(limit);
            let take = match take {
                Some(take) => count(take),
                None => quote_spanned!(here=> 1),
            };
            quote_spanned!(here=> Semaphore { limit: #limit, take: #take })
        }
    }
}

/// A duration that the user's expression returns.
fn typed(value: &Expr, private: &TokenStream) -> TokenStream {
    let at_value = Span::mixed_site().located_at(value.span());
    let private = relocated(private, at_value);
    quote_spanned! {at_value=>
        { let time: #private::core::time::Duration = #value; time }
    }
}

fn millis(duration: Duration, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    // The duration was made from milliseconds that fit.
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    quote_spanned!(here=> #private::core::time::Duration::from_millis(#millis))
}
