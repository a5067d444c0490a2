use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::prelude::*;

use super::super::registry::Effect;
use super::*;

const S: Duration = Duration::from_secs(1);
const A: SubscribedServer = SubscribedServer(1);
const B: SubscribedServer = SubscribedServer(2);

/// With connections to both.
fn live() -> Shards<u8> {
    let mut shards = Shards::new(S);
    shards.at(A).connected();
    shards.at(B).connected();
    shards
}

/// Sends the commands at a place, and confirms them.
fn settle(shards: &mut Shards<u8>, place: SubscribedServer) -> (Vec<(String, bool)>, Vec<u8>) {
    let (mut sent, mut told) = (vec![], vec![]);
    while let Some(effect) = shards.at(place).next_effect() {
        told.extend(shards.at(place).confirmed(&effect));
        sent.push((effect.channel, effect.subscribe));
    }
    (sent, told)
}

fn subscribed(channel: &str) -> Vec<(String, bool)> {
    vec![(channel.to_owned(), true)]
}

#[test]
fn a_channel_moves_with_its_slot_and_its_listeners_look_again() {
    let mut shards = live();
    let (id, _) = shards.home("c", || Some(A)).attach("c", 7);
    assert_eq!(settle(&mut shards, A), (subscribed("c"), vec![7]));
    assert!(shards.is_confirmed("c"));

    assert!(shards.rearrange(|_| Some(B)).is_empty());
    assert!(!shards.is_confirmed("c"), "not at the new place");
    assert_eq!(shards.listeners("c"), [7]);
    assert_eq!(settle(&mut shards, B), (subscribed("c"), vec![7]));
    let ended = vec![("c".to_owned(), false)];
    assert_eq!(settle(&mut shards, A), (ended, vec![]));
    assert!(shards.is_confirmed("c"));
    assert_eq!(shards.len(), 1);

    // The number does not change.
    let now = Instant::now();
    assert_eq!(
        shards.detach("c", id, SubscriptionEnd::AtOnce, now),
        Some(7)
    );
    settle(&mut shards, B);
    assert_eq!(shards.len(), 0);
}

/// Its end was taken for that of an earlier subscription, and no listener received anything any more.
#[test]
fn a_subscription_that_ended_before_its_confirmation_was_read_was_kept() {
    let mut shards = live();
    shards.home("c", || Some(A)).attach("c", 7);
    let effect = shards.at(A).next_effect().expect("it subscribes");
    shards.left(A, "c");
    assert_eq!(shards.confirmed(A, &effect), (vec![7], true));
    assert!(!shards.is_confirmed("c") && shards.has_homeless());
    assert!(shards.rearrange(|_| Some(B)).is_empty());
    assert_eq!(settle(&mut shards, B), (subscribed("c"), vec![7]));

    // The message is not about a newer subscription at the same place.
    shards.left(B, "c");
    shards.rearrange(|_| Some(A));
    let effect = shards.at(A).next_effect().expect("it subscribes");
    assert_eq!(shards.confirmed(A, &effect), (vec![7], false));
}

#[test]
fn a_subscription_that_the_server_ends_waits_for_a_place() {
    let mut shards = live();
    shards.home("c", || Some(A)).attach("c", 7);
    settle(&mut shards, A);
    shards.left(A, "c");
    assert!(shards.has_homeless() && !shards.is_confirmed("c"));
    assert!(shards.places(|_| false).is_empty());
    // The table is still the old one: no place is known for the slot.
    assert!(shards.rearrange(|_| None).is_empty());
    assert!(shards.has_homeless());
    assert!(shards.rearrange(|_| Some(B)).is_empty());
    assert!(!shards.has_homeless());
    assert_eq!(settle(&mut shards, A), (vec![], vec![]));
    assert_eq!(settle(&mut shards, B), (subscribed("c"), vec![7]));
}

/// The end belongs to the subscription before.
#[test]
fn a_subscription_that_ended_does_not_take_the_next_one_with_it() {
    let mut shards = live();
    shards.home("c", || Some(A)).attach("c", 7);
    settle(&mut shards, A);
    shards.rearrange(|_| Some(B));
    shards.rearrange(|_| Some(A));
    shards.left(A, "c");
    assert!(!shards.has_homeless());
    let (_, told) = settle(&mut shards, A);
    assert_eq!(told, [7]);
}

#[test]
fn a_channel_that_is_turned_away_waits_for_a_place() {
    let mut shards = live();
    shards.home("c", || Some(A)).attach("c", 7);
    let effect = shards.at(A).next_effect().unwrap();
    shards.turned_away(A, &effect);
    assert!(shards.has_homeless());
    shards.rearrange(|_| Some(B));
    assert_eq!(settle(&mut shards, B), (subscribed("c"), vec![7]));
    // A late confirmation, of a command before another one.
    shards.rearrange(|_| Some(A));
    shards.turned_away(A, &effect);
    shards.rearrange(|_| Some(A));
    let (_, told) = settle(&mut shards, A);
    assert_eq!(told, [7]);
}

#[test]
fn a_new_listener_joins_those_that_have_moved() {
    let mut shards = live();
    shards.home("c", || Some(A)).attach("c", 7);
    settle(&mut shards, A);
    shards.rearrange(|_| Some(B));
    let (_, confirmed) = shards.home("c", || Some(A)).attach("c", 8);
    assert!(!confirmed);
    assert_eq!(settle(&mut shards, B), (subscribed("c"), vec![7, 8]));
}

#[test]
fn a_channel_that_is_confirmed_where_listeners_come_to_tells_them_at_once() {
    let mut shards = live();
    let now = Instant::now();
    let (id, _) = shards.home("c", || Some(B)).attach("c", 1);
    settle(&mut shards, B);
    // Lingers at B, and is wanted at A.
    shards.detach("c", id, SubscriptionEnd::Later, now);
    shards.at(A).attach("c", 2);
    settle(&mut shards, A);
    let told = shards.rearrange(|channel| (channel == "c").then_some(B));
    assert_eq!(told, [2]);
}

/// It would be subscribed where the slot was.
#[test]
fn a_lingering_channel_ends_when_its_slot_moves() {
    let mut shards = live();
    let (id, _) = shards.home("c", || Some(A)).attach("c", 7);
    settle(&mut shards, A);
    shards.detach("c", id, SubscriptionEnd::Later, Instant::now());
    shards.rearrange(|_| Some(B));
    assert_eq!(settle(&mut shards, B), (vec![], vec![]), "nobody listens");
    let (_, confirmed) = shards.home("c", || Some(B)).attach("c", 8);
    assert!(!confirmed);
    assert_eq!(settle(&mut shards, B), (subscribed("c"), vec![8]));
}

#[test]
fn what_a_node_had_waits_when_the_node_is_gone() {
    let mut shards = live();
    shards.home("c", || Some(A)).attach("c", 7);
    shards.home("d", || Some(B)).attach("d", 8);
    settle(&mut shards, A);
    shards.gone(A);
    assert!(shards.has_homeless());
    assert_eq!(shards.places(|_| false), [(B, "d".to_owned())]);
    assert!(shards.places(|place| place == B).is_empty());
    assert_eq!(shards.listeners("c"), [7]);
    shards.rearrange(|_| Some(B));
    let (sent, told) = settle(&mut shards, B);
    assert_eq!(sent.len(), 2);
    assert_eq!(told, [8, 7]);
}

#[test]
fn a_message_at_one_place_concerns_that_place_alone() {
    let mut shards = live();
    shards.home("c", || Some(A)).attach("c", 7);
    shards.home("d", || Some(B)).attach("d", 8);
    settle(&mut shards, A);
    settle(&mut shards, B);
    let now = Instant::now();
    assert_eq!(shards.at(A).heard("c", 1, now).0, [7]);
    assert!(shards.at(A).heard("d", 1, now).0.is_empty());
    // A lost connection takes only its own channels.
    shards.at(A).disconnected();
    assert!(!shards.is_confirmed("c") && shards.is_confirmed("d"));
    assert!(shards.expect("d", now, now) && !shards.expect("c", now, now));
}

#[derive(Debug, Clone)]
enum Step {
    Attach(u8),
    Detach(usize),
    Move(u8, u8),
    End(u8),
    Answer(u8),
    Break(u8),
    Connect(u8),
    Gone(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (channel, place) = (0..3_u8, 0..3_u8);
    prop_oneof![
        channel.clone().prop_map(Step::Attach),
        any::<usize>().prop_map(Step::Detach),
        (channel.clone(), place.clone()).prop_map(|(channel, to)| Step::Move(channel, to)),
        channel.prop_map(Step::End),
        place.clone().prop_map(Step::Answer),
        place.clone().prop_map(Step::Break),
        place.clone().prop_map(Step::Connect),
        place.prop_map(Step::Gone),
    ]
}

/// A server's side of a connection.
#[derive(Default)]
struct Server {
    up: bool,
    wire: Vec<Effect>,
    subscribed: HashSet<String>,
}

fn name(channel: u8) -> String {
    channel.to_string()
}

fn place(number: u8) -> SubscribedServer {
    SubscribedServer::new(u64::from(number) + 1)
}

proptest! {
    /// In every order: when all is connected and answered, each channel with listeners is subscribed
    /// where its slot is and nowhere else, and all listeners were told after that.
    #[test]
    fn in_the_end_each_channel_is_where_its_slot_is(steps in proptest::collection::vec(step(), 0..60)) {
        let now = Instant::now();
        let mut shards: Shards<u64> = Shards::new(S);
        let mut servers: BTreeMap<u8, Server> = (0..3).map(|at| (at, Server::default())).collect();
        let mut owners: HashMap<String, u8> = (0..3).map(|channel| (name(channel), 0)).collect();
        let mut listeners: Vec<(String, u64, u64)> = Vec::new();
        // The listeners that were told since the last change of their subscription.
        let mut told: HashSet<u64> = HashSet::new();
        let mut next = 0;
        let peace = [
            Step::Connect(0), Step::Connect(1), Step::Connect(2),
            Step::Answer(0), Step::Answer(1), Step::Answer(2),
        ];
        let peace = std::iter::repeat_n(peace, 12).flatten();
        let disturbed = steps.len();
        for (number, step) in steps.into_iter().chain(peace).enumerate() {
            let quiet = number >= disturbed;
            match step {
                Step::Attach(channel) => {
                    let channel = name(channel);
                    let owner = owners[&channel];
                    let (id, confirmed) = shards.home(&channel, || Some(place(owner))).attach(&channel, next);
                    if confirmed {
                        told.insert(next);
                    }
                    listeners.push((channel, id, next));
                    next += 1;
                }
                Step::Detach(at) if !listeners.is_empty() => {
                    let (channel, id, listener) = listeners.swap_remove(at % listeners.len());
                    let end = if at % 2 == 0 { SubscriptionEnd::AtOnce } else { SubscriptionEnd::Later };
                    prop_assert_eq!(shards.detach(&channel, id, end, now), Some(listener));
                }
                Step::Detach(_) => {}
                Step::Move(channel, to) => {
                    let channel = name(channel);
                    let from = owners.insert(channel.clone(), to).unwrap_or(to);
                    if from != to {
                        for (other, _, listener) in &listeners {
                            if *other == channel {
                                told.remove(listener);
                            }
                        }
                    }
                    told.extend(shards.rearrange(|channel| Some(place(owners[channel]))));
                }
                Step::End(channel) => {
                    // The server reports this for its subscriptions.
                    let channel = name(channel);
                    let owner = owners[&channel];
                    for (at, server) in &mut servers {
                        if *at != owner && server.subscribed.remove(&channel) {
                            shards.left(place(*at), &channel);
                        }
                    }
                    told.extend(shards.rearrange(|channel| Some(place(owners[channel]))));
                }
                Step::Answer(at) => {
                    let Some(server) = servers.get_mut(&at).filter(|server| server.up) else { continue };
                    shards.at(place(at)).tick(now + if quiet { 2 * S } else { S / 2 });
                    while let Some(effect) = shards.at(place(at)).next_effect() {
                        server.wire.push(effect);
                    }
                    if server.wire.is_empty() {
                        continue;
                    }
                    let effect = server.wire.remove(0);
                    match effect.subscribe {
                        true => server.subscribed.insert(effect.channel.clone()),
                        false => server.subscribed.remove(&effect.channel),
                    };
                    told.extend(shards.at(place(at)).confirmed(&effect));
                }
                Step::Break(at) | Step::Gone(at) => {
                    servers.insert(at, Server::default());
                    match step {
                        Step::Gone(_) => shards.gone(place(at)),
                        _ => shards.at(place(at)).disconnected(),
                    }
                    told.extend(shards.rearrange(|channel| Some(place(owners[channel]))));
                }
                Step::Connect(at) => {
                    let Some(server) = servers.get_mut(&at).filter(|server| !server.up) else { continue };
                    server.up = true;
                    shards.at(place(at)).connected();
                }
            }
        }
        for (channel, owner) in &owners {
            let is_listened = listeners.iter().any(|(other, ..)| other == channel);
            for (at, server) in &servers {
                let expected = is_listened && at == owner;
                prop_assert_eq!(server.subscribed.contains(channel), expected, "{} at {}", channel, at);
            }
            prop_assert_eq!(shards.is_confirmed(channel), is_listened);
        }
        for (channel, _, listener) in &listeners {
            prop_assert!(told.contains(listener), "{} of {}", listener, channel);
        }
        prop_assert!(!shards.has_homeless());
    }
}
