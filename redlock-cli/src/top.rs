//! `redlock top`: the hottest locks, on a screen that refreshes.

use std::collections::HashMap;
use std::io::{IsTerminal, stdout};
use std::pin::pin;
use std::thread;
use std::time::Duration;

use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};
use ratatui::{DefaultTerminal, Frame};
use redlock_rt::{Client, Error, Inspection, Shutdown};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::exit::{Code, Failure, in_full};
use crate::found::{holder, kind, short, waiters};
use crate::output::plain;
use crate::server::Server;
use crate::span::nonzero_span;

/// Shows the hottest locks: those with most waiters, then those that are held longest
///
/// HELD counts from when top has seen the holder first. q ends it.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// A pattern of Redis
    #[arg(default_value = "*")]
    pattern: String,
    /// How often to look
    #[arg(long, value_parser = nonzero_span, value_name = "TIME", default_value = "1s")]
    every: Duration,
}

pub(crate) async fn perform(top: Top, server: &Server) -> Result<Code, Failure> {
    if !stdout().is_terminal() {
        return Err(Failure::usage("top needs a terminal: use ls --json"));
    }
    let client = server.client().await?;
    let mut terminal = ratatui::init();
    let shown = show(&top, server, &client, &mut terminal).await;
    ratatui::restore();
    client.shutdown(Shutdown::ReleaseAll).await?;
    shown.map(|()| Code::DONE)
}

/// The contents of the screen.
#[derive(Default)]
struct Screen {
    title: String,
    rows: Vec<[String; 6]>,
    /// When each holder of a lock was first seen.
    since: HashMap<(String, String), Instant>,
}

async fn show(
    top: &Top,
    server: &Server,
    client: &Client,
    terminal: &mut DefaultTerminal,
) -> Result<(), Failure> {
    let mut keys = keyboard();
    let mut ended = signal(SignalKind::terminate())?;
    let mut looks = interval(top.every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut scans = pin!(stream::unfold(looks, |mut looks| async move {
        looks.tick().await;
        let found = pin!(client.scan(&top.pattern));
        Some((found.try_collect::<Vec<_>>().await, looks))
    }));
    let mut screen = Screen::default();
    loop {
        tokio::select! {
            Some(found) = scans.next() => screen.update(server, found),
            key = keys.recv() => if matches!(key, None | Some(Key::End)) {
                return Ok(());
            },
            _ = ended.recv() => return Ok(()),
        }
        terminal.draw(|frame| screen.draw(frame))?;
    }
}

enum Key {
    End,
    /// Another event, such as a resize of the terminal, is a reason to draw.
    Draw,
}

/// The thread ends with the process: nothing interrupts its reading.
fn keyboard() -> mpsc::UnboundedReceiver<Key> {
    let (sender, keys) = mpsc::unbounded_channel();
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            let key = match event {
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => Key::End,
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::End,
                    _ => Key::Draw,
                },
                _ => Key::Draw,
            };
            if sender.send(key).is_err() {
                return;
            }
        }
    });
    keys
}

impl Screen {
    /// Without an answer the last rows stay, and the title gives the reason.
    fn update(&mut self, server: &Server, found: Result<Vec<Inspection>, Error>) {
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.title = plain(&in_full(&error));
                return;
            }
        };
        let now = Instant::now();
        let mut since = HashMap::new();
        let mut rows = Vec::new();
        for one in &found {
            let seen = one.holders.iter().map(|holding| {
                let id = (one.name.clone(), holding.id.to_string());
                let first = self.since.get(&id).copied().unwrap_or(now);
                since.insert(id, first);
                first
            });
            let held = seen.min().map(|first| now - first);
            rows.push((waiters(one), held, one));
        }
        rows.sort_by(|one, other| {
            (other.0, other.1, &one.2.name).cmp(&(one.0, one.1, &other.2.name))
        });
        self.since = since;
        let held = found.iter().filter(|one| !one.holders.is_empty()).count();
        self.title = format!("redlock top: {} names, {held} held; q ends", found.len());
        let rows = rows.into_iter().map(|(waiters, held, one)| {
            [
                plain(&server.full_name(&one.name)),
                kind(one.kind).to_owned(),
                waiters.to_string(),
                short(held),
                short(one.ttl),
                plain(&holder(one)),
            ]
        });
        self.rows = rows.collect();
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let [title, body] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
        frame.render_widget(Line::raw(&self.title), title);
        let widths = [
            Constraint::Fill(1),
            Constraint::Length(10),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Fill(1),
        ];
        let head = Row::new(["KEY", "KIND", "WAITERS", "HELD", "TTL", "HOLDER"]);
        let rows = self
            .rows
            .iter()
            .map(|row| Row::new(row.iter().map(String::as_str)));
        let table = Table::new(rows, widths)
            .header(head.style(Style::new().add_modifier(Modifier::REVERSED)));
        frame.render_widget(table, body);
    }
}
