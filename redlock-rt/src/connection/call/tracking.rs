//! Makes a server report the next write to some keys (CLIENT TRACKING, over RESP2).

use std::sync::Arc;

use super::exchange::Exchange;
use super::link::Link;
use crate::connection::fault::{Cause, Fault};
use crate::connection::server::Listener;
use crate::connection::stream::{Pending, WakeUp, encode};
use crate::wire::Value;

/// A request to a server to watch keys, until it answers.
pub(crate) struct Watched {
    link: Arc<Link>,
    sent: Pending,
    keys: usize,
}

impl Exchange {
    /// After the call, makes the server report the next write to each of these keys to this client's
    /// listening connection, unless the write comes over the connection of the call. `None`: it does not.
    ///
    /// A write of that connection silently ends the watch. So the keys are read after a renewal, not in its
    /// script, where each read of a key would begin the watch, and each write end it.
    pub(crate) fn watch_keys(&self, keys: &[&str]) -> Option<Watched> {
        let link = Arc::clone(&self.link);
        let to = match &*link.server.listener() {
            // Another process may give the same id to another client.
            Listener::At(listener) if Some(&listener.run_id) == link.info.run_id.as_ref() => {
                itoa::Buffer::new().format(listener.client_id).to_owned()
            }
            _ => return None,
        };
        let on = [
            "CLIENT", "TRACKING", "ON", "REDIRECT", &to, "OPTIN", "NOLOOP",
        ];
        let on = on.map(str::as_bytes);
        let mut read = vec![&b"EXISTS"[..]];
        read.extend(keys.iter().map(|key| key.as_bytes()));
        let sent = link.leave(WakeUp::default(), |out| {
            [
                encode::command(out, &on),
                encode::command(out, &[b"CLIENT", b"CACHING", b"YES"]),
                encode::command(out, &read),
            ]
        });
        Some(Watched {
            sent: sent.ok()?,
            keys: keys.len(),
            link,
        })
    }
}

impl Watched {
    /// Whether a key was already gone, so that its end was not reported.
    pub(crate) async fn came_late(self) -> bool {
        let Self { link, sent, keys } = self;
        let mut there = None;
        for answer in sent.await {
            match link.value(answer) {
                Ok(Value::Error(error)) => {
                    // An error for one key says nothing about the others, and the listener may have gone.
                    let detail = error.detail().to_ascii_lowercase();
                    let passes = detail.contains(" key") || detail.contains("redirect");
                    if !passes && Fault::from_server(error).cause != Cause::Passing {
                        link.server.tells_nobody();
                    }
                    return false;
                }
                Ok(Value::Int(count)) => there = usize::try_from(count).ok(),
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        there.is_some_and(|there| there < keys)
    }
}
