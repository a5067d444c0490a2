//! The rights that a server must grant before this client takes a lock there. One plain command takes a free lock,
//! and sets its lease. So a missing right to renew would be noticed only when the lock is lost.

use std::sync::atomic::Ordering;

use super::link::{Link, load_command};
use crate::connection::fault::{
    Cause::{Misconfigured, NoScripts},
    Fault,
};
use crate::connection::stream::{WakeUp, encode};
use crate::wire::{Value, renew};

/// A key that does not exist. No right to it is needed.
const KEY: &[u8] = b"redlock_probe";

impl Link {
    /// Checks once for each server what each renewal needs: the script, with no holds, and its commands. Also checks
    /// HDEL, since a caller that only drops its guards would not notice a refusal. Changes nothing.
    pub(super) async fn prove(&self) -> Result<(), Fault> {
        let run_id = self.info.run_id.as_ref();
        if let Some(deletes) = self.server.deletes(run_id) {
            self.deletes.store(deletes, Ordering::Relaxed);
            return Ok(());
        }
        let call = renew(&[]);
        let sent = self.send(WakeUp::default(), |out| {
            [
                encode::command(out, &load_command(call.script())),
                encode::evalsha(out, &call, self.publish()),
                encode::command(out, &[b"HGET", KEY, b"0"]),
                encode::command(out, &[b"PTTL", KEY]),
                // An allowed command fails, because the value is not a number.
                encode::command(out, &[b"PEXPIRE", KEY, b"never"]),
                encode::command(out, &[b"HDEL", KEY, b"0"]),
            ]
        })?;
        let commands = [
            ("without SCRIPT LOAD no lock can be renewed", NoScripts),
            ("without EVALSHA no lock can be renewed", NoScripts),
            ("without HGET no lock can be renewed", Misconfigured),
            ("without PTTL no lock can be renewed", Misconfigured),
            ("without PEXPIRE no lock can be renewed", Misconfigured),
        ];
        let mut answers = sent.await;
        // Without HDEL, locks are released by scripts.
        let deletes = match answers.pop() {
            Some(Err(unanswered)) => return Err(unanswered.fault().while_dialing()),
            Some(Ok(Value::Error(error))) => Fault::lacking(error, "", Misconfigured).is_none(),
            _ => true,
        };
        for (answer, (lacking, unknown)) in answers.into_iter().zip(commands) {
            let answer = answer.map_err(|unanswered| unanswered.fault().while_dialing())?;
            if let Value::Error(error) = answer {
                Fault::lacking(error, lacking, unknown).map_or(Ok(()), Err)?;
            }
        }
        self.deletes.store(deletes, Ordering::Relaxed);
        self.server.is_proven(run_id, deletes);
        Ok(())
    }
}
