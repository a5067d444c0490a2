use super::missing::{LATE, NOTICED, ROUND_TRIPS};
use super::*;
use proptest::prelude::*;

const S: Duration = Duration::from_secs(1);

fn live() -> Registry<u8> {
    let mut registry = Registry::new(S);
    registry.connected();
    registry
}

/// With a channel whose last listener has left.
fn lingering(now: Instant) -> Registry<u8> {
    let mut registry = live();
    let (id, _) = registry.attach("c", 1);
    let effect = registry.next_effect().unwrap();
    registry.confirmed(&effect);
    registry.detach("c", id, SubscriptionEnd::Later, now);
    registry
}

#[test]
fn listeners_are_told_when_the_channel_is_confirmed() {
    let mut registry = live();
    assert!(!registry.attach("c", 1).1);
    let effect = registry.next_effect().unwrap();
    assert!(effect.subscribe);
    assert_eq!(registry.attach("c", 2), (1, false));
    assert_eq!(registry.confirmed(&effect), [1, 2]);
    assert_eq!(registry.attach("c", 3), (2, true));
    assert_eq!(registry.next_effect(), None);
    let now = Instant::now();
    assert_eq!(registry.heard("c", 1, now), (vec![1, 2, 3], None));
}

#[test]
fn a_listener_that_attaches_in_ending_waits_for_the_new_confirmation() {
    let now = Instant::now();
    let mut registry = lingering(now);
    assert_eq!(registry.tick(now), Some(now + S));
    assert_eq!(registry.tick(now + S), None);
    let end = registry.next_effect().unwrap();
    assert!(!end.subscribe);
    assert!(!registry.attach("c", 2).1);
    let again = registry.next_effect().unwrap();
    assert!(registry.confirmed(&end).is_empty());
    assert!(!registry.is_confirmed("c"));
    assert_eq!(registry.confirmed(&again), [2]);
}

#[test]
fn a_lingering_channel_is_taken_up_again_without_a_command() {
    let now = Instant::now();
    let mut registry = lingering(now);
    assert!(registry.attach("c", 2).1);
    registry.tick(now + 2 * S);
    assert_eq!(registry.next_effect(), None);
    assert!(registry.is_confirmed("c"));
}

/// Otherwise a client that releases and asks again would not know that it has just had the lock.
#[test]
fn what_is_known_of_others_stays_while_the_subscription_lingers() {
    let now = Instant::now();
    let mut registry = live();
    let (id, _) = registry.attach("c", 1);
    let effect = registry.next_effect().unwrap();
    registry.confirmed(&effect);
    assert!(!registry.released("c", 2, now));
    registry.detach("c", id, SubscriptionEnd::Later, now);
    registry.rivals("c").unwrap().releasing(now, false);
    let (told, pause) = registry.heard("c", 1, now);
    assert!(told.is_empty());
    let rivals = registry.rivals("c").unwrap();
    assert_eq!(rivals.asks(now), pause.map(|pause| now + pause));
    assert!(pause.is_some() && rivals.compete());
    registry.tick(now + 2 * S);
    let end = registry.next_effect().unwrap();
    registry.confirmed(&end);
    assert!(registry.rivals("c").is_none());
}

/// It never waits, since it is always first. So it would never subscribe.
#[test]
fn a_client_that_releases_what_others_listen_to_subscribes_for_a_moment() {
    let now = Instant::now();
    let mut registry = live();
    assert!(!registry.released("c", 0, now));
    assert_eq!(registry.next_effect(), None);
    assert!(registry.released("c", 1, now));
    assert!(registry.next_effect().unwrap().subscribe);
    assert!(registry.rivals("c").unwrap().asks(now).is_some());
    assert_eq!(registry.tick(now), Some(now + S));
    assert_eq!(registry.tick(now + S), None);
    assert!(!registry.next_effect().unwrap().subscribe);
    let mut brief = Registry::<u8>::new(Duration::ZERO);
    brief.connected();
    assert!(!brief.released("c", 1, now));
    assert_eq!(brief.next_effect(), None);
}

#[test]
fn a_new_connection_subscribes_to_what_is_still_wanted() {
    let mut registry = live();
    let (gone, _) = registry.attach("gone", 1);
    registry.attach("wanted", 2);
    let effects = [
        registry.next_effect().unwrap(),
        registry.next_effect().unwrap(),
    ];
    effects
        .iter()
        .for_each(|effect| drop(registry.confirmed(effect)));
    registry.detach("gone", gone, SubscriptionEnd::Later, Instant::now());
    registry.disconnected();
    assert!(!registry.is_confirmed("wanted"));
    registry.connected();
    let effect = registry.next_effect().unwrap();
    assert_eq!((&*effect.channel, effect.subscribe), ("wanted", true));
    assert_eq!(registry.next_effect(), None);
    assert_eq!(registry.confirmed(&effect), [2]);
}

/// It was reported as sent again, but was not until the connection broke.
#[test]
fn a_subscription_that_was_refused_once_was_never_begun() {
    let mut registry = live();
    registry.attach("c", 1);
    let effect = registry.next_effect().unwrap();
    assert_eq!(registry.refused(&effect), [1]);
    assert_eq!(registry.next_effect(), None);
    registry.repeat_refused();
    let again = registry.next_effect().unwrap();
    assert!(again.subscribe && !registry.is_confirmed("c"));
    // It is in progress, and then confirmed.
    registry.repeat_refused();
    assert_eq!(registry.confirmed(&again), [1]);
    registry.repeat_refused();
    assert_eq!(registry.next_effect(), None);
}

#[test]
fn lingering_is_bounded_in_number() {
    let now = Instant::now();
    let mut registry = live();
    for channel in 0..=MOST_LINGERING {
        let channel = channel.to_string();
        let (id, _) = registry.attach(&channel, 1);
        let effect = registry.next_effect().unwrap();
        registry.confirmed(&effect);
        registry.detach(&channel, id, SubscriptionEnd::Later, now);
    }
    let ended = registry.next_effect().unwrap();
    assert_eq!((&*ended.channel, ended.subscribe), ("0", false));
    assert_eq!(registry.next_effect(), None);
}

#[test]
fn an_unconfirmed_channel_that_lingers_is_not_taken_for_confirmed() {
    let mut registry = live();
    let (id, _) = registry.attach("c", 1);
    let effect = registry.next_effect().unwrap();
    registry.detach("c", id, SubscriptionEnd::Later, Instant::now());
    assert!(!registry.attach("c", 2).1);
    assert_eq!(registry.confirmed(&effect), [2]);
}

const C: &str = "c";

/// With a confirmed channel that has one listener.
fn listening() -> Registry<u8> {
    let mut registry = live();
    registry.attach(C, 1);
    let effect = registry.next_effect().unwrap();
    registry.confirmed(&effect);
    registry
}

#[test]
fn a_message_of_our_own_that_is_not_heard_is_missed_in_time() {
    let now = Instant::now();
    let mut registry = listening();
    assert!(registry.expect(C, now, now));
    assert_eq!(registry.overdue_at(), Some(now + NOTICED));
    assert!(registry.overdue(now + NOTICED / 2).told.is_empty());
    let overdue = registry.overdue(now + NOTICED);
    assert_eq!((&*overdue.told, overdue.doubt), (&[1][..], true));
    // In doubt no listener relies on the message.
    assert!(!registry.expect(C, now, now));
    registry.disconnected();
    registry.connected();
    let effect = registry.next_effect().unwrap();
    assert_eq!(registry.confirmed(&effect), [1]);
    assert!(registry.expect(C, now, now));
}

#[test]
fn a_message_before_the_reply_is_not_expected_again() {
    let now = Instant::now();
    let mut registry = listening();
    registry.heard(C, 1, now);
    assert!(registry.expect(C, now, now));
    assert_eq!(registry.overdue_at(), None);
    // That message was of an earlier call.
    assert!(registry.expect(C, now + S, now + S));
    assert_eq!(registry.overdue_at(), Some(now + S + NOTICED));
    registry.heard(C, 1, now + S);
    let overdue = registry.overdue(now + S + NOTICED);
    assert!(overdue.told.is_empty() && !overdue.doubt);
    assert_eq!(registry.overdue_at(), None);
}

#[test]
fn a_channel_is_mute_where_the_connection_answers_and_until_something_is_heard() {
    let now = Instant::now();
    let mut registry = listening();
    assert!(registry.expect(C, now, now));
    assert!(registry.overdue(now + NOTICED).doubt);
    assert!(registry.answered());
    assert!(!registry.expect(C, now + S, now + S));
    assert_eq!(registry.overdue_at(), None);
    registry.heard(C, 1, now + S);
    assert!(registry.expect(C, now + 2 * S, now + 2 * S));
    assert!(!registry.answered());
}

#[test]
fn a_channel_that_is_busy_has_one_timer() {
    let mut now = Instant::now();
    let mut registry = listening();
    for _ in 0..100 {
        assert!(registry.expect(C, now, now));
        registry.heard(C, 1, now);
        now += Duration::from_millis(1);
    }
    assert!(registry.expect(C, now, now));
    assert_eq!(registry.missing.owed.len(), 1);
    // The timer is the first one's; the last one has its own time.
    let overdue = registry.overdue(registry.overdue_at().unwrap());
    assert!(overdue.told.is_empty());
    assert_eq!(registry.overdue_at(), Some(now + NOTICED));
}

/// A process that was stopped has not read messages that came meanwhile.
#[test]
fn a_late_check_is_repeated_once() {
    let now = Instant::now();
    let mut registry = listening();
    assert!(registry.expect(C, now, now));
    let late = now + S;
    assert!(registry.overdue(late).told.is_empty());
    assert_eq!(registry.overdue(late + LATE).told, [1]);
}

#[test]
fn a_slow_server_has_some_round_trips() {
    let now = Instant::now();
    let mut registry = listening();
    assert!(registry.expect(C, now, now + S));
    assert_eq!(registry.overdue_at(), Some(now + S + S * ROUND_TRIPS));
}

proptest! {
    /// Whatever happens in whatever order: a channel that counts as confirmed is subscribed on
    /// the server; and when all is quiet, exactly the wanted channels are.
    #[test]
    fn confirmed_means_subscribed(steps in proptest::collection::vec((0..6u8, 0..3u8), 1..150)) {
        let mut now = Instant::now();
        let mut registry = live();
        // The server: commands in flight to it, in order, and its subscriptions.
        let mut wire: VecDeque<Effect> = VecDeque::new();
        let mut subscribed = std::collections::BTreeSet::new();
        let mut up = true;
        let mut attached: Vec<(String, u64)> = vec![];
        let send = |registry: &mut Registry<u8>, wire: &mut VecDeque<Effect>| {
            wire.extend(std::iter::from_fn(|| registry.next_effect()));
        };
        for (step, at) in steps {
            let channel = format!("c{at}");
            match step {
                0 | 1 => attached.push((channel.clone(), registry.attach(&channel, at).0)),
                2 if !attached.is_empty() => {
                    let (channel, id) = attached.remove(usize::from(at) % attached.len());
                    prop_assert!(registry.detach(&channel, id, SubscriptionEnd::Later, now).is_some());
                }
                3 if up => {
                    if let Some(effect) = wire.pop_front() {
                        if effect.subscribe {
                            subscribed.insert(effect.channel.clone());
                        } else {
                            subscribed.remove(&effect.channel);
                        }
                        registry.confirmed(&effect);
                    }
                }
                4 => {
                    now += S;
                    registry.tick(now);
                }
                5 => {
                    if up {
                        registry.disconnected();
                        wire.clear();
                        subscribed.clear();
                    } else {
                        registry.connected();
                    }
                    up = !up;
                }
                _ => {}
            }
            if up {
                send(&mut registry, &mut wire);
            }
            for channel in ["c0", "c1", "c2"] {
                prop_assert!(!registry.is_confirmed(channel) || subscribed.contains(channel));
            }
        }
        if !up {
            registry.connected();
        }
        registry.tick(now + 2 * S);
        send(&mut registry, &mut wire);
        for effect in wire {
            if effect.subscribe {
                subscribed.insert(effect.channel.clone());
            } else {
                subscribed.remove(&effect.channel);
            }
            registry.confirmed(&effect);
        }
        let wanted: std::collections::BTreeSet<_> =
            attached.iter().map(|(channel, _)| channel.clone()).collect();
        prop_assert_eq!(&subscribed, &wanted);
        prop_assert_eq!(registry.len(), wanted.len());
        prop_assert!(wanted.iter().all(|channel| registry.is_confirmed(channel)));
    }
}
