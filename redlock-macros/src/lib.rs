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
#[cfg(test)]
mod fuzz;
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
/// | `key` | what is locked: a [template](#the-key), or an expression | required, or `keys` |
/// | `keys` | [several](#several-keys) of these, held together | |
/// | `kind` | the [kind](#the-kind) of lock | `reentrant` |
/// | `wait` | how long to wait for the lock; `"0s"` tries once, `forever` has no end | the client's default |
/// | `lease` | after how long Redis frees the lock of a process that has died | the client's default |
/// | `renew` | `true`, `false`, or how often the lease is renewed while the body runs | `true`: each third of the lease |
/// | `max_hold` | how long the lock is held at most, however long the body takes | no limit |
/// | `min_hold` | how long [others are kept out](#once-in-a-while) at least, however soon the body ends | no longer than the body |
/// | `on_timeout` | [what is returned](#when-the-lock-is-not-to-be-had) where others had the lock for all of `wait` | `error` |
/// | `on_unavailable` | the same where Redis was not there | `error` |
/// | `on_lost` | what becomes of a body whose [lock is lost](#when-the-lock-is-lost) | `cancel` |
/// | `map_err` | makes the function's error of a `redlock_rt::Error` | [`From`] |
/// | `when` | a condition: where it is false, the body runs without a lock | `true` |
/// | `guard` | what the [guard](#the-guard) is called in the body | it cannot be seen |
/// | `token` | what the [fencing token](#the-guard) is called in the body | it cannot be seen |
/// | `owner` | an expression: the `Owner` to lock as | a fresh one, or that of the call around |
/// | `client` | an expression: [the client](#the-client) to lock with | the process's default |
/// | `name` | what the function is called in logs and hooks | its path |
/// | `crate` | the path of `redlock_rt`, where it has another name | `::redlock_rt` |
///
/// Durations are whole numbers with a unit, in quotes: `"500ms"`, `"1s"`, `"2m"`, `"1h"`, `"7d"`,
/// also together: `"1m30s"`. They are checked at compile time, also against each other: `max_hold`
/// is at least `lease`, and `renew` is less. Or they are any expression that is a `Duration`.
///
/// Expressions see what the body sees: the parameters, `self`, whatever is in scope. They are
/// evaluated in the order `when`, key, `client`, the others, when the call is first polled, before
/// anything is awaited (those of a second attribute, under the lock of the first). They cannot await,
/// and only borrow the parameters; `value(..)` and `call(..)`, which are evaluated instead of the
/// body, may await and take them. `map_err` is evaluated last, and cannot use what the body takes.
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
/// error at run time, since `order:` would be one lock for everybody. (`<user:?>` shows quotes around
/// nothing, and passes.)
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
/// Put text between two placeholders: `<a><b>` is the same key for 1, 23 and for 12, 3. Braces are
/// text, such as a hash tag of a cluster: `{<tenant>}:<id>`; `{id}`, of a parameter `id`, does not
/// compile, since it is hardly meant to be text. Nor does a name that is no parameter:
///
/// ```compile_fail
/// # use redlock_rt::{Error, distributed_lock};
/// #[distributed_lock(key = "order:<user>")] // no parameter `user`; did you mean `user_id`?
/// async fn place(user_id: u64) -> Result<(), Error> {
///     Ok(())
/// }
/// ```
///
/// An expression in place of the template is displayed in the same way: `key = self.key_of(order)`.
///
/// # Several keys
///
/// `keys` are held together or not at all, by a `MultiLock`: sorted, each once, so that calls with
/// opposite orders do not wait for each other. All have the same kind and options, and `wait` is one
/// budget for all of them.
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(keys = ["account:<from>", "account:<to>"], wait = "2s")]
/// async fn transfer(from: u32, to: u32, amount: u64) -> Result<u64, Error> {
///     Ok(amount)
/// }
///
/// #[distributed_lock(keys = seats.iter().map(|seat| format!("seat:{seat}")))]
/// async fn book(seats: &[u32]) -> Result<usize, Error> {
///     Ok(seats.len())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # redlock_rt::set_default_client(Client::embedded());
///
/// let (there, back) = tokio::join!(transfer(1, 2, 30), transfer(2, 1, 40));
/// assert_eq!((there?, back?), (30, 40));
/// assert_eq!(book(&[12, 13, 12]).await?, 3);
/// # Ok(())
/// # }
/// ```
///
/// # The kind
///
/// | `kind` | is |
/// | --- | --- |
/// | `reentrant` | `RLock`: one call at a time |
/// | `fair` | `FairLock`: the same, first come, first served, across processes |
/// | `read`, `write` | `ReadWriteLock`: many calls of readers, or one of a writer |
/// | `fenced` | `FencedLock`: one at a time, each with a larger token |
/// | `spin` | `SpinLock`: one at a time, for bodies of milliseconds |
/// | `semaphore(limit = N)` | `PermitExpirableSemaphore`: at most `N` calls at a time |
///
/// A call under a semaphore takes one permit, or `take = K` of them. The first call sets the number
/// of permits; a semaphore that exists keeps its own, so change `N` by
/// `PermitExpirableSemaphore::set_permits` too.
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "bank", kind = semaphore(limit = 2), wait = "0s")]
/// async fn call_bank(nested: u32) -> Result<u32, Error> {
///     // Permits are not re-entered: each call has one of its own.
///     match nested {
///         0 => Ok(0),
///         _ => Box::pin(call_bank(nested - 1)).await,
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # redlock_rt::set_default_client(Client::embedded());
///
/// assert_eq!(call_bank(1).await?, 0);
/// assert!(call_bank(2).await.unwrap_err().is_contended());
/// # Ok(())
/// # }
/// ```
///
/// # The client
///
/// `client` is any expression that is a client, or refers or dereferences to one: a field
/// (`self.locks`), a parameter, a `static` `LazyLock<Client>`, an `Arc<Client>`, a call. It is
/// evaluated right after the key. Without it, the client is that of the innermost
/// `redlock_rt::with_default_client` around the call, or the one that was last given to
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
/// Where `E` cannot be made from it, `map_err` does that: a path or a closure.
///
/// # When the lock is not to be had
///
/// By default the call fails, *closed*: nothing is ever done unlocked because Redis is down.
/// `on_timeout` says what is returned instead where somebody else had the lock for all of `wait`,
/// `on_unavailable` where Redis could not be reached or did not answer:
///
/// | value | returns |
/// | --- | --- |
/// | `error` | the error |
/// | `skip` | `Ok` of the [default](Default) value |
/// | `value(..)` | what the expression is, of the function's return type |
/// | `call(path)` | what this async function returns, called with the same parameters (and `self`) |
///
/// Every other error, such as a blank key, stays one: the function always returns a `Result`.
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "sweep", wait = "0s", on_timeout = skip)]
/// async fn sweep() -> Result<u32, Error> {
///     Ok(17)
/// }
///
/// #[distributed_lock(key = "rates:<day>", wait = "50ms", on_timeout = call(cached))]
/// async fn rates(day: &str) -> Result<String, Error> {
///     Ok(format!("fresh rates of {day}"))
/// }
///
/// async fn cached(day: &str) -> Result<String, Error> {
///     Ok(format!("old rates of {day}"))
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let client = Client::embedded();
/// # redlock_rt::set_default_client(client.clone());
///
/// assert_eq!(sweep().await?, 17);
/// let elsewhere = client.multi_lock(["sweep", "rates:monday"]).lock().await?;
/// assert_eq!(sweep().await?, 0);
/// assert_eq!(rates("monday").await?, "old rates of monday");
/// # elsewhere.unlock().await?;
/// # Ok(())
/// # }
/// ```
///
/// # When the lock is lost
///
/// Someone deletes it, Redis loses it, or it cannot be renewed in time: then another call may run
/// beside this one. `on_lost` says what becomes of the body:
///
/// | value | does |
/// | --- | --- |
/// | `cancel` | drops the body where it awaits, and returns an error (`is_lost()`): how much of it was done is not known |
/// | `finish` | lets it come to its end, and returns its value |
/// | `error_after` | lets it come to its end, and returns an error in place of its value |
///
/// A body that has come to its end keeps its value, whatever happens to the lock (but for
/// `error_after`). That the lock was lost by then is counted in `Stats::late_losses`, and told to
/// the hook of `ClientBuilder::on_late_loss`. Where the value cannot wait for the
/// [release](#where-it-can-stand), that is so of a loss that is known before it, and not of one that
/// only the release finds.
///
/// # The guard
///
/// `guard = name` lets the body see its guard, of the kind's own type: to ask whether it is still
/// valid before a step that cannot be taken back, to extend the lease, to know the owner.
/// `token = name`, for `kind = fenced`, is the token to send along with every write.
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "ledger", kind = fenced, guard = guard, token = token)]
/// async fn append(line: &str) -> Result<String, Error> {
///     assert!(guard.is_valid());
///     Ok(format!("{line} by {}: {}", guard.owner(), token > 0))
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # redlock_rt::set_default_client(Client::embedded());
/// # assert!(append("x").await?.ends_with("true"));
/// # Ok(())
/// # }
/// ```
///
/// # Once in a while
///
/// A job that every machine starts at the same hour, and that only one is to run: `wait = "0s"` and
/// `on_timeout = skip` let the others pass. If it is done before the last machine's clock strikes,
/// that one would run it again; `min_hold` keeps it out. Redis does that, so the process need not
/// live on. Until then the lock stays locked, and its `holder` is the owner of the call that has ended.
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "report", wait = "0s", min_hold = "5m", on_timeout = skip)]
/// async fn nightly_report() -> Result<bool, Error> {
///     Ok(true)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # redlock_rt::set_default_client(Client::embedded());
///
/// assert!(nightly_report().await?);
/// assert!(!nightly_report().await?);
/// # Ok(())
/// # }
/// ```
///
/// # Release
///
/// The lock is released when the body ends, in whichever way: by its value, `return`, `?`, a panic.
/// The call returns after the release, so what its caller does next comes after it for others too;
/// but where Redis does not answer it waits no longer than the client's response time-out, or what is
/// left of the lease, and the release goes on in the background.
/// A call that is dropped before it ends releases in the background. Work that the body has spawned
/// and not awaited is not under the lock, nor is the end of a parameter that the body does not
/// mention: it is dropped after the release.
///
/// # Nested calls
///
/// An annotated function that calls another one with the same key, kind and client re-enters the
/// lock that it holds already. Two calls that run concurrently inside of it, as in `join!`, exclude
/// each other. A reader may be called by a writer; a writer that is called by a reader is an error at
/// once (`UpgradeWouldDeadlock`). Other kinds are other locks of the same name: they wait for each
/// other, until `wait` ends.
///
/// Several attributes on one function take their locks in the order in which they are written.
/// Everybody must take them in the same order, or two calls can wait for each other until `wait`
/// ends. (Call it `distributed_lock` there, with or without a path: of what `use .. as ..` calls
/// otherwise, the compiler expands the last first.)
///
/// # Where it can stand
///
/// On an `async fn`: a function, a method with any kind of `self`, a method of a trait or of its
/// impl; generic or not. On a function that returns its work as `Box::pin(async move { .. })`, as
/// `#[async_trait]` makes it of the methods of an impl or trait. Put attributes that take the
/// `async` away, such as `#[tokio::test]`, below this one.
///
/// The future is `Send` exactly if it was before. The release is awaited before the call returns if the
/// function's return type is known to be `Send` (in a generic function: by its bounds). Else it is
/// only under way by then, since a value that is not `Send` cannot wait for it.
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
/// The first example becomes this, but for what makes the messages of the compiler good:
///
/// ```text
/// async fn place(user_id: u64, item: &str) -> Result<String, Error> {
///     let entering = __private::Call::new(
///         concat!(module_path!(), "::place"),
///         __private::key(&[
///             __private::Segment::Text("order:"),
///             __private::Segment::Value("user_id", format_args!("{}", user_id)),
///         ]),
///         __private::client(None),
///     )
///     .wait(Some(Duration::from_millis(1000)))
///     .enter(__private::Kind::Lock(__private::LockKind::Reentrant));
///     let body = async move { Ok(format!("{item} for {user_id}")) };
///     // Where the value waits for the release, if it is `Send`.
///     let (output, body) = __private::Output::of(body);
///     let place = (&output).place();
///     let fail = |error| __private::FromLockError::from_lock_error(error);
///     entering.run(place, fail, body).await
/// }
/// ```
///
/// With `guard = held, on_timeout = skip`, the body is made when it will run:
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
///         Ok(format!("{item} for {user_id}"))
///     };
///     let (output, body) = __private::Output::of(body);
///     let place = (&output).place();
///     session.run(place, fail, body).await
/// ```
///
/// `__private` is `::redlock_rt::__private`, which is not for other code to call.
///
/// # Panics
///
/// A panic of the body releases in the background. The call panics outside of a Tokio runtime with
/// timers (`enable_time`), as everything that waits for Redis does.
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::distributed_lock(args.into(), item.into()).into()
}
