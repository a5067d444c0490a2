//! Listeners to the events of a client.
//!
//! An event is queued where it happens, under the mutex of what has changed, so that the order is right.
//! Wakers run foreign code, so the release task wakes the listeners, and holds no mutex.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use tokio::sync::Notify;

use super::Event;
use super::spans::EndedSpan;
use crate::shim::lock_std;

/// How many events wait for a listener at most.
const MOST: usize = 1024;

/// The events of one client.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// The number of listeners.
    listening: AtomicUsize,
    listeners: Mutex<Vec<Arc<Mutex<Queue>>>>,
    ended: AtomicBool,
    /// Spans that are to end.
    spans: Mutex<Vec<EndedSpan>>,
    /// Notified when listeners are to be woken.
    told: Notify,
}

/// The events that one listener has not taken yet.
#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    missed: u64,
    waker: Option<Waker>,
}

/// The events of a client, as a [`Stream`](futures::Stream); see [`Client::events`](crate::Client::events).
#[derive(Debug)]
pub struct Events {
    news: Arc<News>,
    queue: Arc<Mutex<Queue>>,
}

impl News {
    pub(crate) fn listen(self: &Arc<Self>) -> Events {
        let queue = Arc::<Mutex<Queue>>::default();
        lock_std(&self.listeners).push(Arc::clone(&queue));
        self.listening.fetch_add(1, Ordering::Relaxed);
        Events {
            news: Arc::clone(self),
            queue,
        }
    }

    /// Queues an event. Makes the event only if there is a listener.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if self.listening.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.queue(&event());
    }

    #[cold]
    fn queue(&self, event: &Event) {
        for queue in &*lock_std(&self.listeners) {
            let mut queue = lock_std(queue);
            if queue.events.len() == MOST {
                queue.events.pop_front();
                queue.missed += 1;
            }
            queue.events.push_back(event.clone());
        }
        self.told.notify_one();
    }

    /// The span of a hold is over.
    pub(crate) fn ends(&self, span: Option<EndedSpan>) {
        if let Some(span) = span {
            lock_std(&self.spans).push(span);
            self.told.notify_one();
        }
    }

    /// Waits until there is an event, and wakes the listeners.
    pub(crate) async fn wake_up(&self) {
        self.told.notified().await;
        self.wake();
    }

    fn wake(&self) {
        let ended = self.ended.load(Ordering::Relaxed);
        let spans = std::mem::take(&mut *lock_std(&self.spans));
        spans.into_iter().for_each(EndedSpan::end);
        let listeners = lock_std(&self.listeners).clone();
        for queue in listeners {
            let mut queue = lock_std(&queue);
            let due = ended || !queue.events.is_empty();
            let waker = queue.waker.take_if(|_| due);
            drop(queue);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Nothing happens any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake();
    }
}

impl Events {
    /// Waits for the next event; `None`: the client has ended.
    ///
    /// # Cancel safety
    ///
    /// No event is lost.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut queue = lock_std(&self.queue);
        // Read before the events: once the end is set, the last events are queued. `end` takes the waker
        // under this mutex.
        let ended = self.news.ended.load(Ordering::Acquire);
        if queue.missed > 0 {
            return Poll::Ready(Some(Event::Missed(std::mem::take(&mut queue.missed))));
        }
        if let Some(event) = queue.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        let before = queue.waker.replace(cx.waker().clone());
        drop(queue);
        drop(before);
        match ended {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.news.listening.fetch_sub(1, Ordering::Relaxed);
        lock_std(&self.news.listeners).retain(|queue| !Arc::ptr_eq(queue, &self.queue));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_listener_that_is_dropped_hears_no_more_and_others_do() {
        let news = Arc::<News>::default();
        let [mut stays, leaves] = [(); 2].map(|()| news.listen());
        drop(leaves);
        assert_eq!(lock_std(&news.listeners).len(), 1);
        news.tell(|| Event::Missed(7));
        let heard = stays.next().now_or_never();
        assert_eq!(heard, Some(Some(Event::Missed(7))));
        drop(stays);
        news.tell(|| unreachable!("nobody listens"));
    }
}
