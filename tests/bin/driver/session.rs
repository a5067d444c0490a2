//! Reads one line after the other, and runs its command.

use std::{future, sync::Arc, task::Poll, time::Duration};

use tokio::time::sleep;

use super::{
    answer::{Failure, Outcome},
    clients::{Clients, Slot},
    command::{Command, Line},
    locks::{lock_command, owned_command},
    running::Running,
};

/// The limit for running commands to end by themselves at the end of stdin.
const LAST_COMMANDS: Duration = Duration::from_secs(3);

/// Whether to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Line,
    Exit,
}

#[derive(Debug)]
pub(crate) struct Session {
    clients: Arc<Clients>,
    running: Running,
}

impl Session {
    pub(crate) fn new(running: Running) -> Self {
        Self {
            clients: Arc::default(),
            running,
        }
    }

    /// Starts the command of the line.
    pub(crate) async fn line(&self, line: &str) -> Next {
        let Some(Line {
            id,
            client,
            command,
        }) = Line::parse(line)
        else {
            return Next::Line;
        };
        let answer = |outcome: Outcome| self.running.answer(&id, &outcome, Duration::ZERO);
        match command {
            Err(failure) => answer(Err(failure)),
            Ok(Command::Abort) => abort(),
            Ok(Command::Exit) => {
                answer(Ok("ok".to_owned()));
                return Next::Exit;
            }
            Ok(Command::Sleep(duration)) => {
                sleep(duration).await;
                self.running.answer(&id, &Ok("ok".to_owned()), duration);
            }
            Ok(command) => {
                if let Err(failure) = self.start(id.clone(), &client, command).await {
                    answer(Err(failure));
                }
            }
        }
        Next::Line
    }

    /// Gives running commands a moment to end, then ends like [`exit`](Self::exit).
    pub(crate) async fn end_of_input(self) {
        // A waiting command may run for ever, and the reader of its answer may be gone.
        let _ = tokio::time::timeout(LAST_COMMANDS, self.running.idle()).await;
        self.exit().await;
    }

    /// Drops all commands and holds, and waits for the releases.
    pub(crate) async fn exit(self) {
        self.running.cancel_all().await;
        self.clients.close_all().await;
    }

    /// Starts a command. Names and places in queues, which decide the order of commands, are taken
    /// before the next line is read.
    async fn start(&self, id: String, client: &str, command: Command) -> Result<(), Failure> {
        let running = &self.running;
        match command {
            Command::Connect(target) => {
                let slot = self.clients.reserve(client)?;
                let (clients, name) = (Arc::clone(&self.clients), client.to_owned());
                running.start(
                    id,
                    async move { clients.connect(&name, &slot, &target).await },
                );
            }
            Command::Close => {
                let slot = self.clients.remove(client)?;
                running.start(id, async move { slot.close().await });
            }
            Command::Owned { lock, owner, of } => {
                let slot = self.clients.get(client)?;
                let owner = slot.owners.get(&owner);
                if of.is_immediate() {
                    let mut command = Box::pin(async move {
                        owned_command(slot.connected().await?, &lock, &owner, of).await
                    });
                    // The first poll is here, since the next line may release the guard.
                    match futures::poll!(&mut command) {
                        Poll::Ready(outcome) => running.start(id, future::ready(outcome)),
                        Poll::Pending => running.start(id, command),
                    }
                } else {
                    let turn = owner.turns.queue().await;
                    running.start(id, async move {
                        let _turn = turn.come().await;
                        owned_command(slot.connected().await?, &lock, &owner, of).await
                    });
                }
            }
            Command::Cancel { id: other } => {
                let all = running.clone();
                running.start(id, async move { Ok(all.cancel(&other).await.to_string()) });
            }
            command => {
                let slot = self.clients.get(client)?;
                running.start(id, async move { of_client(&slot, command).await });
            }
        }
        Ok(())
    }
}

/// The commands of a client that need no owner.
async fn of_client(slot: &Slot, command: Command) -> Outcome {
    let client = slot.connected().await?;
    match command {
        Command::Shutdown => slot.shutdown().await,
        Command::Uuid => Ok(client.client.uuid().into()),
        Command::Stats => Ok(client.stats()),
        Command::Publish { channel, message } => client.publish(&channel, &message).await,
        Command::Lock { lock, of } => lock_command(client, &lock, of).await,
        Command::Fenced(of) => of.run(client).await,
        Command::Latch(of) => of.run(client).await,
        Command::Barrier(of) => of.run(client).await,
        Command::Service(of) => of.run(client, &slot.services).await,
        Command::Semaphore(of) => of.run(client, &slot.permits).await,
        Command::Connect(_) | Command::Close | Command::Owned { .. } | Command::Cancel { .. } => {
            unreachable!("started by the session")
        }
        Command::Sleep(_) | Command::Abort | Command::Exit => {
            unreachable!("handled with the line")
        }
    }
}

/// Dies at once, as if killed: nothing is released or flushed.
fn abort() -> ! {
    let this = rustix::process::getpid();
    let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
    std::process::abort()
}
