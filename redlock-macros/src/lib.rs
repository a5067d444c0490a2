//! The attribute `#[distributed_lock]` of `redlock-rt`. Depend on `redlock-rt`, which re-exports
//! the attribute, not on this crate.
//!
//! # Layout
//!
//! An expansion passes through the files in this order. Each file uses only files above it:
//!
//! | file | from | to |
//! | --- | --- | --- |
//! | `template`, `duration`, `messages` | `&str` | pure functions, no tokens |
//! | `function`, `form` | tokens | the annotated function, with an unparsed body |
//! | `args` | tokens | options, each valid by itself |
//! | `check` | options, function | a valid `plan` |
//! | `expand` | plan, function | tokens |

#![warn(clippy::unwrap_used)]

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
#[cfg(test)]
mod fuzz_text;
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
/// The body runs only while the lock is held. If the lock is not free within `wait`, or Redis
/// cannot be reached, the body does not run and the caller gets an error: the body never runs
/// unlocked.
///
/// # Options
///
/// | option | value | default |
/// | --- | --- | --- |
/// | `key` | the name of the lock: a [template](#the-key), or an expression | required, or `keys` |
/// | `keys` | [several](#several-keys) names, held together | |
/// | `kind` | the [kind](#the-kind) of lock | `reentrant` |
/// | `wait` | how long to wait for the lock; `"0s"` tries once, `forever` has no limit | the client's default |
/// | `lease` | the time after which Redis frees the lock of a crashed process | the client's default |
/// | `renew` | `true`, `false`, or the interval at which the lease is renewed while the body runs | `true`: every third of the lease |
/// | `max_hold` | the longest time for which the lock is held, however long the body takes | no limit |
/// | `once` | the nominal time of a fire, `Into<SystemTime>`: the body runs [once for it](#once-for-each-fire) | at each call |
/// | `min_hold` | the shortest time for which the [lock stays taken](#periodic-jobs), however soon the body ends | until the body ends |
/// | `replica_ack` | [how many replicas](#replicas) must have the lock before the body runs | the client's default |
/// | `fsync` | [which servers](#replicas) must have the lock on disk before the body runs | the client's default |
/// | `on_timeout` | [what to return](#fallbacks) if another owner held the lock for all of `wait` | `error` |
/// | `on_unavailable` | what to return if Redis could not be reached | `error` |
/// | `on_lost` | what happens to a body whose [lock is lost](#lost-locks) | `cancel` |
/// | `map_err` | converts a `redlock_rt::Error` to the function's error | [`From`] |
/// | `when` | a condition: if it is false, the body runs without a lock | `true` |
/// | `guard` | the name of a variable for the [guard](#the-guard) in the body | no variable |
/// | `token` | the name of a variable for the [fencing token](#the-guard) in the body | no variable |
/// | `owner` | an expression: the `Owner` that locks | a new owner, or that of the enclosing call |
/// | `client` | an expression: [the client](#the-client) to lock with | the process's default |
/// | `name` | the name of the function in logs and hooks | its path |
/// | `blocking` | `true`: the function is [not async](#functions-that-are-not-async), and its thread waits | `false` |
/// | `crate` | the path of `redlock_rt`, if the crate is renamed | `::redlock_rt` |
///
/// Durations are whole numbers with a unit, in quotes: `"500ms"`, `"1s"`, `"2m"`, `"1h"`, `"7d"`,
/// also combined: `"1m30s"`. The compiler checks them, also against each other: `max_hold` is at
/// least `lease`, and `renew` is less than `lease`. Any expression of type `Duration` is allowed
/// too.
///
/// Expressions can use everything that the body can use: the parameters, `self`, and all names in
/// scope.
///
/// * They are evaluated when the call is first polled, before anything is awaited, in the order
///   `when`, key, `client`, the others. The expressions of a second attribute are evaluated under
///   the lock of the first.
/// * They cannot await, and only borrow the parameters.
/// * `value(..)` and `call(..)` are evaluated instead of the body, so they may await and take the
///   parameters.
/// * `map_err` is evaluated last, and cannot use parameters that the body takes.
///
/// # The key
///
/// A template is text with placeholders. A placeholder is a parameter, or a part of one that fields
/// and methods without arguments can reach. Its text comes from [`Display`](std::fmt::Display), or
/// from a format.
///
/// | placeholder | text of |
/// | --- | --- |
/// | `<user_id>` | a parameter, also one bound by a pattern, as in `Path(user_id): Path<u64>` |
/// | `<order.buyer.id>`, `<pair.0>` | a field |
/// | `<self.tenant>` | a field of the method's own value |
/// | `<order.id()>` | the return value of a method |
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
/// The key is computed when the call is first polled, before anything is awaited and before the
/// body takes the parameters; it only borrows them. A placeholder with blank text is an error at
/// run time, since `order:` would be one lock for all users. (`<user:?>` writes quotes around the
/// empty text, so it is not blank.)
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
/// Put text between two placeholders: `<a><b>` is the same key for 1, 23 and for 12, 3. The text
/// between them does not part values that may contain it: with `<tenant>:<item>`, the values
/// ("a:b", "c") and ("a", "b:c") are one key, so one tenant can hold the other's locks. `<tenant:?>`
/// puts a text in quotes and escapes those within; all texts of a key but one need that (numbers do
/// not). The compiler warns where two parameters of a key are visibly text (`String`, `&str`, also
/// in `Cow`, `Box`, `Arc` or `Rc`) without it. Fields and methods are not looked at. If a key must
/// stay as it is, `#[allow(deprecated)]` on the function takes the warning away.
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "<tenant:?>:<item>", client = Client::embedded())]
/// async fn reserve(tenant: &str, item: &str) -> Result<(), Error> {
///     Ok(())
/// }
/// ```
///
/// ```compile_fail
/// #![deny(warnings)]
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "<tenant>:<item>")] // `<tenant>` and `<item>` are texts
/// async fn reserve(tenant: &str, item: &str) -> Result<(), Error> {
///     Ok(())
/// }
/// ```
///
/// Braces are text, such as a hash tag of a cluster: `{<tenant>}:<id>`. But `{id}` does not compile
/// if `id` is a parameter, since it is probably a mistake. A placeholder whose name is not a
/// parameter does not compile either:
///
/// ```compile_fail
/// # use redlock_rt::{Error, distributed_lock};
/// #[distributed_lock(key = "order:<user>")] // no parameter `user`; did you mean `user_id`?
/// async fn place(user_id: u64) -> Result<(), Error> {
///     Ok(())
/// }
/// ```
///
/// An expression instead of a template is converted to text in the same way:
/// `key = self.key_of(order)`.
///
/// # Several keys
///
/// `keys` are held together or not at all, by a `MultiLock`. They are sorted and each is taken
/// once, so calls with opposite orders do not deadlock. All have the same kind and options, and
/// `wait` is one limit for all of them together.
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
/// | `fair` | `FairLock`: one call at a time, first come, first served, across processes |
/// | `read`, `write` | `ReadWriteLock`: many readers, or one writer |
/// | `fenced` | `FencedLock`: one call at a time, each with a larger token |
/// | `spin` | `SpinLock`: one call at a time, for bodies of milliseconds |
/// | `semaphore(limit = N)` | `PermitExpirableSemaphore`: at most `N` calls at a time |
///
/// A call under a semaphore takes one permit, or `take = K` permits. The first call sets the number
/// of permits. An existing semaphore keeps its number, so if you change `N`, call
/// `PermitExpirableSemaphore::set_permits` too.
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "bank", kind = semaphore(limit = 2), wait = "0s")]
/// async fn call_bank(nested: u32) -> Result<u32, Error> {
///     // Permits are not re-entered: each call takes its own permit.
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
/// `client` is any expression that is a client, or a reference to one, or dereferences to one: a
/// field (`self.locks`), a parameter, a `static` `LazyLock<Client>`, an `Arc<Client>`, a call. It
/// is evaluated right after the key. Without this option, the call uses the client of the innermost
/// `redlock_rt::with_default_client` around the call, or else the client of the last
/// `redlock_rt::set_default_client`. If there is none, each call is an error.
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
/// The function returns a `Result<T, E>` (or an alias of one), where `E` implements
/// `From<redlock_rt::Error>`. It returns such an error if the lock was not taken: the wait ran out,
/// Redis could not be reached, the key was invalid, or there was no client. In these cases the body
/// has not run.
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
/// If `E` does not implement that, `map_err` (a path or a closure) converts the error.
///
/// # Fallbacks
///
/// By default the call fails *closed*: the body never runs unlocked, even if Redis is down.
/// `on_timeout` says what to return instead if another owner held the lock for all of `wait`, and
/// `on_unavailable` if Redis could not be reached or did not answer:
///
/// | value | returns |
/// | --- | --- |
/// | `error` | the error |
/// | `skip` | `Ok` of the [default](Default) value |
/// | `value(..)` | the value of the expression, of the function's return type |
/// | `call(path)` | the result of this async function, called with the same parameters (and `self`) |
///
/// Every other error, such as a blank key, stays an error, so the function always returns a
/// `Result`.
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
/// # Lost locks
///
/// A lock is lost if its key is deleted, Redis loses the key, or the lease cannot be renewed in
/// time. Another call may then run at the same time. `on_lost` says what happens to the body:
///
/// | value | does |
/// | --- | --- |
/// | `cancel` | drops the body at its current `.await` and returns an error (`is_lost()`); it is unknown how much of the body has run |
/// | `finish` | runs the body to its end, and returns its value |
/// | `error_after` | runs the body to its end, and returns an error instead of its value |
///
/// The value of a body that has completed is returned, whatever happens to the lock (except with
/// `error_after`). If the lock was lost by then, `Stats::late_losses` counts the loss and the hook
/// of `ClientBuilder::on_late_loss` is called. If the value cannot wait for the
/// [release](#supported-functions), this covers only losses that are known before the release, not
/// losses that the release discovers.
///
/// # The guard
///
/// `guard = name` gives the body access to its guard, which has the guard type of the kind. The
/// body can check that the guard is valid before a step that cannot be undone, extend the lease, or
/// read its `hold_id`. `token = name`, for `kind = fenced`, is the token to send with every write.
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "ledger", kind = fenced, guard = guard, token = token)]
/// async fn append(line: &str) -> Result<String, Error> {
///     assert!(guard.is_valid());
///     Ok(format!("{line} by {}: {}", guard.hold_id(), token > 0))
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # redlock_rt::set_default_client(Client::embedded());
/// # assert!(append("x").await?.ends_with("true"));
/// # Ok(())
/// # }
/// ```
///
/// # Periodic jobs
///
/// Every machine starts a job at the same hour, and only one machine is to run the job. With
/// `wait = "0s"` and `on_timeout = skip` the other machines skip the job. But a job that ends
/// quickly would run a second time on a machine whose clock is late. `min_hold` prevents this: it
/// keeps the lock taken for at least this long. Redis enforces `min_hold`, so the process may end
/// earlier. Until then the lock stays locked, and its `holder` is the owner of the call that has
/// ended.
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
/// # Once for each fire
///
/// `once` is the nominal time of a job that several instances start: the body runs once for each name and
/// time, as with [`Client::once`](https://docs.rs/redlock-rt/latest/redlock_rt/struct.Once.html), whatever the
/// clocks say. The function returns `Result<Option<T>, E>`, where `Ok(None)` is what a call returns that has
/// run nothing: another instance has done it, or has run it for all of `wait`. A body that returns an
/// error, panics, is dropped, or whose process dies leaves the fire open: a call that waits begins it again.
/// One that returns `Ok(..)` has done it, also `Ok(None)`; if Redis cannot be told, the log says so, and
/// the fire is open when the lease is over.
///
/// ```
/// use std::time::{Duration, SystemTime, UNIX_EPOCH};
/// use redlock_rt::{Client, Error, distributed_lock};
///
/// #[distributed_lock(key = "nightly-report", once = fire)]
/// async fn report(fire: SystemTime) -> Result<Option<u32>, Error> {
///     Ok(Some(1000))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # redlock_rt::set_default_client(Client::embedded());
/// let fire = UNIX_EPOCH + Duration::from_secs(1_795_834_800);
/// assert_eq!(report(fire).await?, Some(1000));
/// assert_eq!(report(fire).await?, None);
/// # Ok(())
/// # }
/// ```
///
/// The lock has the name `once:KEY:TIME`, a fencing token (`token`), and a mark that Redis keeps for a day.
/// `kind`, `keys`, `owner`, `min_hold`, `on_timeout` and `when` do not go with it. For a limit of attempts, or
/// another time for which the mark is kept, use `Client::once`.
///
/// # Replicas
///
/// A lock that no replica has yet is lost in a failover. `replica_ack` says how many replicas must
/// have the lock before the body runs:
///
/// | value | waits for |
/// | --- | --- |
/// | `none` | no replica |
/// | `2` | at least this many replicas |
/// | `majority` | so many that more than half of the servers have the lock, the master among them |
/// | `all` | all replicas |
/// | `{ ack }` | what an expression of type `ReplicaAck` says |
///
/// If fewer replicas have the lock in time, the lock is released, the body does not run, and the
/// call returns an error (`is_not_replicated()`). That is no [fallback](#fallbacks)'s case: the lock
/// was free, and Redis was reached.
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "payout:<id>", wait = "2s", replica_ack = 1)]
/// async fn pay_out(id: u64) -> Result<(), Error> {
///     unreachable!("this engine has no replicas")
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # redlock_rt::set_default_client(Client::embedded());
///
/// assert!(pay_out(7).await.is_err());
/// # }
/// ```
///
/// A server that has the lock may have it in memory only. `fsync` says which servers must have it on
/// disk, in the append-only file (`appendonly yes`; Redis 7.2 or Valkey):
///
/// | value | on disk |
/// | --- | --- |
/// | `none` | nowhere |
/// | `replicas` | at the replicas that `replica_ack` asks for |
/// | `all` | at these, and at the master; without `replica_ack` at the master alone |
/// | `{ fsync }` | what an expression of type `Fsync` says |
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "payout:<id>", wait = "5s", replica_ack = 1, fsync = all)]
/// async fn pay_out(id: u64) -> Result<(), Error> {
///     unreachable!("this engine has no disk")
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # redlock_rt::set_default_client(Client::embedded());
///
/// assert!(pay_out(7).await.is_err());
/// # }
/// ```
///
/// # Release
///
/// The lock is released when the body ends: by its value, `return`, `?` or a panic.
///
/// * The call returns after the release, so the caller's next step happens after the release for
///   other clients too. If Redis does not answer, the call waits no longer than the client's
///   response time-out or the rest of the lease, and the release continues in the background.
/// * A call that is dropped before it ends releases in the background.
/// * Work that the body has spawned and not awaited is not under the lock.
/// * A parameter that the body does not mention is dropped after the release.
///
/// # Nested calls
///
/// If an annotated function calls another one with the same key, kind and client, the inner call
/// re-enters the lock. Two concurrent inner calls, as in `join!`, exclude each other. A writer may
/// call a reader. If a reader calls a writer, the writer returns an error at once
/// (`UpgradeWouldDeadlock`). Different kinds with the same key are different locks of the same
/// name: the inner call waits for the outer one until `wait` ends.
///
/// Several attributes on one function take their locks in the order in which they are written. All
/// functions must take these locks in the same order, or two calls can wait for each other until
/// `wait` ends. (Use the name `distributed_lock` here, with or without a path: the compiler expands
/// attributes that `use .. as ..` has renamed in the reverse order.)
///
/// # Supported functions
///
/// * An `async fn`: a function, a method with any kind of `self`, a method of a trait or of its
///   impl; generic or not.
/// * A function that returns its work as `Box::pin(async move { .. })`, as `#[async_trait]`
///   generates it for the methods of an impl or trait.
///
/// Put attributes that remove the `async`, such as `#[tokio::test]`, below this one.
///
/// The future is `Send` exactly if it is `Send` without the attribute. If the function's return
/// type is known to be `Send` (in a generic function: by its bounds), the call awaits the release
/// before it returns. Otherwise the release is only in progress when the call returns, since a
/// value that is not `Send` cannot wait for the release.
///
/// Functions whose work happens after they return (a returned future, stream or iterator) are not supported:
/// that work would be unlocked.
///
/// # Functions that are not async
///
/// With `blocking = true` the function is not async, and its thread waits for the lock; see
/// `redlock_rt::blocking`. The client needs a thread of its own (`ClientBuilder::dedicated_thread`). The body has no await at
/// which it could be cancelled: if its lock is lost, it runs to its end. Called in an asynchronous task, the
/// function panics.
///
/// ```
/// # use redlock_rt::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "report:<day>", client = locks, blocking = true)]
/// fn report(locks: &Client, day: u32) -> Result<u32, Error> {
///     Ok(day)
/// }
///
/// # let redis = redlock_rt::embedded::Engine::new();
/// let client = Client::builder().embedded(&redis).dedicated_thread(true).build().unwrap();
/// assert_eq!(report(&client, 7).unwrap(), 7);
/// ```
///
/// # Cancel safety
///
/// Dropping the call is safe at every await. Before the lock is held, nothing remains in Redis.
/// Later, the body is dropped first, and then the lock is released in the background.
///
/// # Expansion
///
/// The first example expands to this code, without the parts that improve compiler messages:
///
/// ```text
/// async fn place(user_id: u64, item: &str) -> Result<String, Error> {
///     let entering = __private::AttributeCall::new(
///         concat!(module_path!(), "::place"),
///         __private::key(&[
///             __private::Segment::Text("order:"),
///             __private::Segment::Value("user_id", format_args!("{}", user_id)),
///         ]),
///         __private::client(None),
///         __private::LockOptions::new(),
///     )
///     .wait(Some(Duration::from_millis(1000)))
///     .enter(__private::Primitive::Lock(__private::LockKind::Reentrant));
///     let body = async move { Ok(format!("{item} for {user_id}")) };
///     // The place in which the value waits for the release, if it is `Send`.
///     let (output, body) = __private::Output::of(body);
///     let place = (&output).place();
///     let fail = |error| __private::FromLockError::from_lock_error(error);
///     entering.run(place, fail, body).await
/// }
/// ```
///
/// With `guard = held, on_timeout = skip`, the body is made only when it will run:
///
/// ```text
///     let entering = /* as above */;
///     let session = match entering.await {
///         Ok(session) => session,
///         Err(error) => return match __private::refusal_kind(&error) {
///             RefusalKind::Timeout => {
///                 __private::skipped(&error); // leaves a trace
///                 let value: Result<String, Error> = __private::skip();
///                 value
///             }
///             RefusalKind::Unavailable => FromLockError::from_lock_error(error),
///             RefusalKind::Other => FromLockError::from_lock_error(error),
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
/// `__private` is `::redlock_rt::__private`, which other code must not call.
///
/// # Panics
///
/// If the body panics, the lock is released in the background. The call panics outside of a Tokio
/// runtime with timers (`enable_time`), as do all calls that wait for Redis.
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::distributed_lock(args.into(), item.into()).into()
}
