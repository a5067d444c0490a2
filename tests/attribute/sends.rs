//! The future is `Send` exactly if it is `Send` without the attribute.
//!
//! `tests/ui` also checks that a future is not `Send`. Here a method resolution distinguishes the two
//! cases.

use std::{cell::Cell, error::Error as StdError, fmt::Display, marker::PhantomData, rc::Rc};

use redlock_rt::{Client, Error, Owner, distributed_lock};
use tokio::task::yield_now;

fn send<F: Future + Send>(future: F) -> F {
    future
}

/// Tells by method resolution whether a value is `Send`.
struct Probe<T>(PhantomData<T>);

fn probe<T>(_: &T) -> Probe<T> {
    Probe(PhantomData)
}

trait IsSend {
    fn is_send(&self) -> bool;
}

impl<T: Send> IsSend for Probe<T> {
    fn is_send(&self) -> bool {
        true
    }
}

trait IsNotSend {
    fn is_send(&self) -> bool;
}

impl<T> IsNotSend for &Probe<T> {
    fn is_send(&self) -> bool {
        false
    }
}

macro_rules! is_send {
    ($future:expr) => {
        (&probe(&$future)).is_send()
    };
}

struct Id(u8);

impl Id {
    /// A part of the key that is not `Send`.
    fn text(&self) -> Rc<str> {
        self.0.to_string().into()
    }
}

/// Has all options that change the expansion.
macro_rules! in_each_form {
    ($($form:ident($($option:tt)*);)+) => {
        $(mod $form {
            use super::*;

            #[distributed_lock(key = "<id.text()>", client = client $($option)*)]
            pub(super) async fn key(client: &Client, id: Id, text: &mut str) -> Result<usize, Error> {
                let length = {
                    let length = Rc::new(text.len());
                    *length
                };
                yield_now().await;
                Ok(length)
            }

            #[distributed_lock(keys = [id.text(), "<id.text()>:2"], client = client $($option)*)]
            pub(super) async fn keys(client: &Client, id: Id) -> Result<(), Error> {
                yield_now().await;
                Ok(())
            }

            #[distributed_lock(key = "client", client = client.lock().unwrap() $($option)*)]
            pub(super) async fn guarded(client: &std::sync::Mutex<Client>) -> Result<(), Error> {
                yield_now().await;
                Ok(())
            }

            #[distributed_lock(
                key = "owner", owner = *Rc::new(owner), client = client $($option)*
            )]
            pub(super) async fn owner(client: &Client, owner: &Owner) -> Result<(), Error> {
                yield_now().await;
                Ok(())
            }

            #[distributed_lock(
                key = "when",
                when = *Rc::new(true) && id.text().len() == 1,
                lease = *Rc::new(std::time::Duration::from_secs(7)),
                client = client
                $($option)*
            )]
            pub(super) async fn condition(client: &Client, id: Id) -> Result<(), Error> {
                yield_now().await;
                Ok(())
            }

            /// A value that is not `Send` is not kept across an await.
            #[distributed_lock(key = "rc", client = client $($option)*)]
            pub(super) async fn rc(client: &Client) -> Result<Rc<u8>, Error> {
                yield_now().await;
                Ok(Rc::default())
            }

            #[distributed_lock(key = "error", client = client $($option)*)]
            pub(super) async fn boxed(client: &Client) -> Result<u8, Box<dyn StdError>> {
                yield_now().await;
                Ok("7".parse()?)
            }

            #[distributed_lock(key = "<value>", client = client $($option)*)]
            pub(super) async fn value<T: Display + Default>(
                client: &Client,
                value: T,
            ) -> Result<T, Error> {
                yield_now().await;
                Ok(value)
            }

            /// Does not keep its output.
            #[distributed_lock(key = "made", client = client $($option)*)]
            pub(super) async fn made<T: Default>(client: &Client) -> Result<T, Error> {
                yield_now().await;
                Ok(T::default())
            }

            #[distributed_lock(key = "keeps", client = client $($option)*)]
            pub(super) async fn keeps(client: &Client) -> Result<u8, Error> {
                let kept = Rc::new(1);
                yield_now().await;
                Ok(*kept)
            }

            #[distributed_lock(key = "takes", client = client $($option)*)]
            pub(super) async fn takes(client: &Client, cell: &Cell<u8>) -> Result<u8, Error> {
                yield_now().await;
                Ok(cell.get())
            }

            /// As in generic code, where nothing else is known about the type.
            pub(super) async fn through<T: Display + Default + Send>(
                client: &Client,
                given: T,
            ) -> Result<T, Error> {
                send(value(client, given)).await
            }

            pub(super) async fn through_made<T: Default>(client: &Client) -> Result<T, Error> {
                send(made::<T>(client)).await
            }

            #[tokio::test]
            async fn is_what_it_was() {
                let client = Client::embedded();
                let mut text = String::from("abc");
                assert_eq!(send(key(&client, Id(1), &mut text)).await.unwrap(), 3);
                send(keys(&client, Id(1))).await.unwrap();
                send(guarded(&std::sync::Mutex::new(client.clone()))).await.unwrap();
                send(owner(&client, &Owner::new())).await.unwrap();
                send(condition(&client, Id(1))).await.unwrap();
                assert_eq!(*send(rc(&client)).await.unwrap(), 0);
                assert_eq!(send(boxed(&client)).await.unwrap(), 7);
                assert_eq!(send(value(&client, 8)).await.unwrap(), 8);
                assert_eq!(send(through(&client, 9)).await.unwrap(), 9);
                assert_eq!(*send(through_made::<Rc<u8>>(&client)).await.unwrap(), 0);

                assert!(is_send!(value(&client, 1)));
                assert!(!is_send!(value(&client, Shown(Rc::default()))));
                assert!(!is_send!(keeps(&client)));
                assert!(!is_send!(takes(&client, &Cell::new(1))));
                assert_eq!(keeps(&client).await.unwrap(), 1);
                assert_eq!(takes(&client, &Cell::new(2)).await.unwrap(), 2);
            }
        })+
    };
}

#[derive(Default)]
struct Shown(Rc<u8>);

impl Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

in_each_form! {
    plain();
    skipping(, on_timeout = skip);
    with_name(, name = "form");
    finishing(, on_lost = finish, on_unavailable = skip);
}

/// Has a guard and no condition, which exclude each other.
mod bound {
    use super::*;

    #[distributed_lock(key = "<id.text()>", guard = held, client = client)]
    async fn key(client: &Client, id: Id) -> Result<Rc<bool>, Error> {
        yield_now().await;
        Ok(Rc::new(held.is_valid()))
    }

    #[distributed_lock(
        key = "<id.text()>", kind = semaphore(limit = *Rc::new(3)), guard = held, client = client
    )]
    async fn permit(client: &Client, id: Id) -> Result<bool, Error> {
        yield_now().await;
        Ok(held.is_valid())
    }

    #[distributed_lock(key = "calls", on_timeout = call(other), wait = "0s", client = client)]
    async fn calls(client: &Client, id: Id) -> Result<Rc<str>, Error> {
        yield_now().await;
        Ok(id.text())
    }

    async fn other(_client: &Client, id: Id) -> Result<Rc<str>, Error> {
        yield_now().await;
        Ok(id.text())
    }

    #[distributed_lock(
        key = "mapped", map_err = |error| Rc::new(error.to_string()), client = client
    )]
    async fn mapped(client: &Client) -> Result<u8, Rc<String>> {
        yield_now().await;
        Ok(1)
    }

    #[distributed_lock(key = "outer", guard = outer, client = client)]
    #[distributed_lock(key = "<id.text()>", guard = inner, on_timeout = skip, client = client)]
    async fn nested(client: &Client, id: Id) -> Result<bool, Box<dyn StdError>> {
        yield_now().await;
        Ok(outer.is_valid() && inner.is_valid())
    }

    #[tokio::test]
    async fn is_what_it_was() {
        let client = Client::embedded();
        assert!(*send(key(&client, Id(1))).await.unwrap());
        assert!(send(permit(&client, Id(2))).await.unwrap());
        assert_eq!(&*send(calls(&client, Id(1))).await.unwrap(), "1");
        let held = client.rlock("calls").lock().await.unwrap();
        assert_eq!(&*send(calls(&client, Id(2))).await.unwrap(), "2");
        held.unlock().await.unwrap();
        assert_eq!(send(mapped(&client)).await.unwrap(), 1);
        assert!(send(nested(&client, Id(3))).await.unwrap());
    }
}
