//! The running commands, each a separate task that can be cancelled by its ID.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ::tests::lock;
use tokio::sync::{oneshot, watch};

use super::answer::{Answers, Failure, Outcome};

#[derive(Clone, Debug)]
pub(crate) struct Running {
    answers: Answers,
    commands: Arc<Commands>,
}

#[derive(Debug, Default)]
struct Commands {
    by_id: Mutex<HashMap<String, Entry>>,
    /// The number of running commands.
    count: watch::Sender<usize>,
}

#[derive(Debug)]
struct Entry {
    cancel: Option<oneshot::Sender<()>>,
    /// `Some(whether it was cancelled)` after its answer.
    ended: watch::Receiver<Option<bool>>,
}

impl Running {
    pub(crate) fn new(answers: Answers) -> Self {
        Self {
            answers,
            commands: Arc::default(),
        }
    }

    /// Sends the answer of a command that needs no task.
    pub(crate) fn answer(&self, id: &str, outcome: &Outcome, took: Duration) {
        self.answers.send(id, outcome, took);
    }

    /// Runs a command until its answer, unless it is cancelled before.
    pub(crate) fn start(
        &self,
        id: String,
        command: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let (cancel, cancelled) = oneshot::channel();
        let (end, ended) = watch::channel(None);
        {
            let mut by_id = lock(&self.commands.by_id);
            if by_id.contains_key(&id) {
                let outcome = Err(Failure::usage(format!("{id} is running already")));
                return self.answers.send(&id, &outcome, Duration::ZERO);
            }
            by_id.insert(
                id.clone(),
                Entry {
                    cancel: Some(cancel),
                    ended,
                },
            );
            self.commands.count.send_replace(by_id.len());
        }
        let start = Instant::now();
        let this = self.clone();
        tokio::spawn(async move {
            // The command's future is dropped before its answer, so that after the answer of a
            // cancelled command its future is gone.
            let outcome = {
                let command = pin!(command);
                tokio::select! {
                    biased;
                    Ok(()) = cancelled => None,
                    outcome = command => Some(outcome),
                }
            };
            let was_cancelled = outcome.is_none();
            let outcome = outcome.unwrap_or_else(|| Err(Failure::cancelled()));
            // The ID is free before a reader of the answer can use it again.
            let mut by_id = lock(&this.commands.by_id);
            by_id.remove(&id);
            this.answers.send(&id, &outcome, start.elapsed());
            end.send_replace(Some(was_cancelled));
            this.commands.count.send_replace(by_id.len());
        });
    }

    /// Cancels a command; false if it has ended or is unknown.
    pub(crate) async fn cancel(&self, id: &str) -> bool {
        let mut ended = {
            let mut by_id = lock(&self.commands.by_id);
            let Some(entry) = by_id.get_mut(id) else {
                return false;
            };
            entry.cancel();
            entry.ended.clone()
        };
        // An error means that the task has ended.
        ended
            .wait_for(Option::is_some)
            .await
            .is_ok_and(|ended| *ended == Some(true))
    }

    /// Waits until no command runs.
    pub(crate) async fn idle(&self) {
        let mut count = self.commands.count.subscribe();
        // The sender is in `self`.
        let _ = count.wait_for(|&count| count == 0).await;
    }

    /// Cancels all running commands, and waits for their answers.
    pub(crate) async fn cancel_all(&self) {
        lock(&self.commands.by_id)
            .values_mut()
            .for_each(Entry::cancel);
        self.idle().await;
    }
}

impl Entry {
    fn cancel(&mut self) {
        // Missing if it was cancelled before, refused if the command has just ended.
        let _ = self.cancel.take().map(|cancel| cancel.send(()));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        io::{BufRead, BufReader, PipeReader, pipe},
    };

    use super::*;

    fn running() -> (Running, impl Iterator<Item = String>) {
        let (reader, writer) = pipe().unwrap();
        let (answers, _) = Answers::start(writer);
        let lines = BufReader::<PipeReader>::new(reader)
            .lines()
            .map(Result::unwrap);
        (Running::new(answers), lines)
    }

    #[tokio::test]
    async fn answers_come_as_commands_end() {
        let (running, mut lines) = running();
        let (go, gone) = oneshot::channel::<()>();
        running.start("slow".to_owned(), async move {
            gone.await.unwrap();
            Ok("late".to_owned())
        });
        running.start("fast".to_owned(), async { Ok("early".to_owned()) });
        running
            .commands
            .count
            .subscribe()
            .wait_for(|&count| count == 1)
            .await
            .unwrap();
        go.send(()).unwrap();
        running.idle().await;
        assert!(lines.next().unwrap().starts_with("fast ok early "));
        assert!(lines.next().unwrap().starts_with("slow ok late "));
    }

    #[tokio::test]
    async fn a_cancelled_command_lets_go_before_it_answers() {
        let (running, mut lines) = running();
        let (held, dropped) = oneshot::channel::<()>();
        running.start("1".to_owned(), async move {
            let _held = held;
            pending().await
        });
        assert!(running.cancel("1").await);
        assert!(dropped.await.is_err());
        assert!(lines.next().unwrap().starts_with("1 err cancelled: "));
        assert!(!running.cancel("1").await);
    }

    #[tokio::test]
    async fn an_id_is_used_once_at_a_time() {
        let (running, mut lines) = running();
        running.start("1".to_owned(), pending());
        running.start("1".to_owned(), pending());
        assert!(lines.next().unwrap().starts_with("1 err usage: "));
        running.cancel_all().await;
        assert!(lines.next().unwrap().starts_with("1 err cancelled: "));
        running.start("1".to_owned(), async { Ok("again".to_owned()) });
        running.idle().await;
        assert!(lines.next().unwrap().starts_with("1 ok again "));
    }
}
