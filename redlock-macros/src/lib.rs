//! The attribute `#[distributed_lock]` of `redlock-rt`, which re-exports it: depend on that crate,
//! not on this one.
//!
//! # Layout
//!
//! An expansion goes through the files in this order, and each knows only what is before it:
//!
//! | file | from | to |
//! | --- | --- | --- |
//! | `template`, `duration`, `messages` | `&str` | pure functions, no tokens |
//! | `function`, `form` | tokens | the annotated function, its body left unparsed |
//! | `args` | tokens | options, each correct by itself |
//! | `check` | options, function | `plan`, in which nothing is wrong |
//! | `expand` | plan, function | tokens |

use proc_macro::TokenStream;

mod args;
mod check;
mod duration;
mod errors;
mod expand;
mod form;
mod function;
mod messages;
mod plan;
mod template;

/// Runs an async function under a distributed lock.
///
/// ```
/// use redlock_rt::{Client, Error, distributed_lock};
///
/// #[distributed_lock(key = "order:<user_id>", wait = "1s")]
/// async fn place(user_id: u64, item: &str) -> Result<String, Error> {
///     // No other call for this user runs here, in this process or in any other.
///     Ok(format!("{item} for {user_id}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// redlock_rt::set_default_client(Client::embedded());
/// assert_eq!(place(7, "book").await?, "book for 7");
/// # Ok(())
/// # }
/// ```
///
/// The body runs only while the lock is held. If the lock is not to be had within `wait`, or Redis
/// is not, the body does not run and the caller gets an error: nothing is ever done unlocked.
///
/// # Options
///
/// | option | value | without it |
/// | --- | --- | --- |
/// | `key` | what is locked, a [template](#the-key) | required |
/// | `wait` | how long to wait for the lock; `"0s"` tries once | the client's default |
/// | `lease` | after how long Redis frees the lock of a process that has died | the client's default |
/// | `max_hold` | how long the lock is held at most, however long the body takes | no limit |
/// | `renew` | `true` or `false`: whether the lease is renewed while the body runs | `true` |
/// | `client` | an expression: [the client](#the-client) to lock with | the process's default |
/// | `crate` | the path of `redlock_rt`, where it has another name | `::redlock_rt` |
///
/// Durations are whole numbers with a unit, in quotes: `"500ms"`, `"1s"`, `"2m"`, `"1h"`, `"7d"`,
/// also together: `"1m30s"`. They are checked at compile time, and so is that `max_hold` is at
/// least `lease`.
///
/// # The key
///
/// Text with placeholders. A placeholder is a parameter, or something in it that can be reached by
/// fields and by methods without arguments; it is shown by [`Display`](std::fmt::Display), or as a
/// format says.
///
/// | placeholder | shows |
/// | --- | --- |
/// | `<user_id>` | a parameter, also one bound by a pattern, as in `Path(user_id): Path<u64>` |
/// | `<order.buyer.id>`, `<pair.0>` | a field |
/// | `<self.tenant>` | a field of the method's own value |
/// | `<order.id()>` | what a method returns |
/// | `<id:08x>`, `<name:?>` | any of these, with a format as in [`format!`] |
/// | `<<` and `>>` | a literal `<` and `>` |
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// struct Shop {
///     tenant: String,
///     locks: Client,
/// }
///
/// struct Order {
///     id: u32,
///     buyer: String,
/// }
///
/// impl Order {
///     fn buyer(&self) -> &str {
///         &self.buyer
///     }
/// }
///
/// impl Shop {
///     #[distributed_lock(
///         key = "<self.tenant>:<order.buyer()>:<order.id:08x>",
///         client = self.locks
///     )]
///     async fn ship(&self, order: Order) -> Result<bool, Error> {
///         self.locks.rlock("acme:ada:0000002a").is_locked().await
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
///
/// let shop = Shop { tenant: "acme".to_owned(), locks: Client::embedded() };
/// let order = Order { id: 42, buyer: "ada".to_owned() };
/// assert!(shop.ship(order).await?);
/// # Ok(())
/// # }
/// ```
///
/// The key is made when the call is first polled, before anything is awaited and before the body
/// takes the parameters; it only borrows them. A placeholder that shows nothing but blanks is an
/// error at run time, since `order:` would be one lock for everybody:
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "order:<user>")]
/// async fn place(user: &str) -> Result<(), Error> {
///     unreachable!("the lock is not even asked for")
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # redlock_rt::set_default_client(Client::embedded());
///
/// assert!(place("").await.unwrap_err().is_bad_input());
/// # }
/// ```
///
/// Put text between two placeholders: `<a><b>` is the same key for 1, 23 and for 12, 3. A name that
/// is no parameter does not compile:
///
/// ```compile_fail
/// # use redlock_rt::{Error, distributed_lock};
/// #[distributed_lock(key = "order:<user>")] // no parameter `user`; did you mean `user_id`?
/// async fn place(user_id: u64) -> Result<(), Error> {
///     Ok(())
/// }
/// ```
///
/// # The client
///
/// `client` is any expression that is a client, or refers or dereferences to one: a field
/// (`self.locks`), a parameter, a `static` `LazyLock<Client>`, an `Arc<Client>`, a call. It is
/// evaluated right after the key. Without it, the client is the one that was last given to
/// `redlock_rt::set_default_client`; if there is none, each call is an error.
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// use std::sync::LazyLock;
///
/// static LOCKS: LazyLock<Client> = LazyLock::new(Client::embedded);
///
/// #[distributed_lock(key = "nightly-report", client = LOCKS)]
/// async fn report() -> Result<(), Error> {
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # report().await
/// # }
/// ```
///
/// # Errors
///
/// The function returns a `Result<T, E>` (or an alias of one) where `E` is made from
/// `redlock_rt::Error`. It returns such an error when the lock was not taken: the wait ran out,
/// Redis could not be reached, the key was bad, there was no client. Then the body has not run.
///
/// ```
/// use redlock_rt::{Client, distributed_lock};
///
/// #[derive(Debug)]
/// enum AppError {
///     Busy,
///     Lock(redlock_rt::Error),
///     SoldOut,
/// }
///
/// impl From<redlock_rt::Error> for AppError {
///     fn from(error: redlock_rt::Error) -> Self {
///         if error.is_timed_out() || error.is_contended() {
///             Self::Busy
///         } else {
///             Self::Lock(error)
///         }
///     }
/// }
///
/// #[distributed_lock(key = "stock:<item>", wait = "0s")]
/// async fn buy(item: &str, stock: u32) -> Result<u32, AppError> {
///     stock.checked_sub(1).ok_or(AppError::SoldOut)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// # let client = Client::embedded();
/// # redlock_rt::set_default_client(client.clone());
///
/// assert!(matches!(buy("book", 1).await, Ok(0)));
/// assert!(matches!(buy("book", 0).await, Err(AppError::SoldOut)));
///
/// let held = client.rlock("stock:book").lock().await?;
/// assert!(matches!(buy("book", 1).await, Err(AppError::Busy)));
/// # held.unlock().await?;
/// # Ok(())
/// # }
/// ```
///
/// It also returns one when the lock was lost while the body ran: someone deleted it, Redis lost
/// it, or it could not be renewed in time. The body is then dropped where it awaits, and the error
/// (`is_lost()`) means that how much of it was done is not known. A body that has come to its end
/// keeps its value, whatever happens to the lock.
///
/// # Release
///
/// The lock is released when the body ends, in whichever way: by its value, `return`, `?`, a panic.
/// The call returns after the release, so what its caller does next comes after it for others too.
/// A call that is dropped before it ends releases in the background. Work that the body has spawned
/// and not awaited is not under the lock.
///
/// # Nested calls
///
/// An annotated function that calls another one with the same key re-enters the lock that it holds
/// already. Two calls that run concurrently inside of it, as in `join!`, exclude each other.
///
/// Several attributes on one function take their locks in the order in which they are written.
/// Everybody must take them in the same order, or two calls can wait for each other until `wait`
/// ends.
///
/// # Where it can stand
///
/// On an `async fn`: a function, a method with any kind of `self`, a method of a trait or of its
/// impl; generic or not. Methods of an `#[async_trait]`, and functions that return a
/// `Box::pin(async move { .. })` they end in, are as good. Put attributes that take the `async` away,
/// such as `#[tokio::test]`, below this one.
///
/// The future is `Send` exactly if it was before. A value that is `Send` waits until the lock is
/// released; another one (or of a type parameter that is not known to be) is handed over at once,
/// with the release on its way.
///
/// Not on other functions, which would have to block the thread, nor where the work is done after
/// the function has returned (a returned future, stream or iterator): that would be unlocked.
///
/// # Cancel safety
///
/// Dropping the call is safe at every await: before the lock is held, nothing remains in Redis;
/// afterwards the body is dropped, then the lock is released in the background.
///
/// # Expansion
///
/// The first example becomes, with `__private` for `::redlock_rt::__private`:
///
/// ```text
/// async fn place(user_id: u64, item: &str) -> Result<String, Error> {
///     let entering = __private::Call::new(
///         concat!(module_path!(), "::place"),
///         __private::key(&[
///             Segment::Text("order:"),
///             Segment::Value("user_id", format_args!("{}", user_id)),
///         ]),
///         __private::client(None),
///     )
///     .wait(Some(Duration::from_millis(1000)))
///     .enter(Kind::Lock(LockKind::Reentrant));
///     let body = async move {
///         if false {
///             let fake_return: Result<String, Error> = loop {};
///             return fake_return; // so the block is of that type
///         }
///         { Ok(format!("{item} for {user_id}")) }
///     };
///     let place = (&__private::Output::of(&body)).place();
///     let fail = |error| <Result<String, Error> as FromLockError>::from_lock_error(error);
///     entering.run(place, fail, body).await
/// }
/// ```
///
/// `place` is where the value waits for the release: nowhere, if it is not `Send`. With
/// `guard = held, on_timeout = skip`, the body is made when it will run:
///
/// ```text
///     let entering = /* as above */;
///     let session = match entering.await {
///         Ok(session) => session,
///         Err(error) => return match __private::because(&error) {
///             Because::Timeout => {
///                 __private::skipped(&error); // leaves a trace
///                 let value: Result<String, Error> = __private::skip();
///                 value
///             }
///             Because::Unavailable => FromLockError::from_lock_error(error),
///             Because::Other => FromLockError::from_lock_error(error),
///         },
///     };
///     let held = session.held();
///     let body = async move {
///         let held = held.reentrant();
///         { Ok(format!("{item} for {user_id}")) }
///     };
///     let place = (&__private::Output::of(&body)).place();
///     session.run(place, fail, body).await
/// ```
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::distributed_lock(args.into(), item.into()).into()
}
