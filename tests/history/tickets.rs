use tests::history::{Adoption, History, Ms};

use super::{broken, history, holds, sight, with};

/// Three processes have it one after the other, each but the first by this ticket.
fn adopted(tickets: [&str; 2], sights: &[(Ms, &[&str])]) -> History {
    let turns = [(1, 20, 60), (2, 70, 200), (3, 300, 400)];
    let turns = turns.map(|(process, from, until)| {
        with(holds(process, from, until), |grant| {
            grant.owner = format!("client-{process}:7");
        })
    });
    let mut history = history(turns);
    history.adoptions = tickets.iter().enumerate().map(adoption).collect();
    history.sights = sights
        .iter()
        .map(|(at, owners)| sight(*at, owners))
        .collect();
    history
}

fn adoption((place, owner): (usize, &&str)) -> Adoption {
    Adoption {
        owner: (*owner).to_owned(),
        acquisition: place + 1,
    }
}

const A: &str = "client-1:7";
const B: &str = "client-2:7";
const C: &str = "client-3:7";

#[test]
fn a_ticket_that_is_adopted_twice_is_found() {
    let sights: &[(Ms, &[&str])] = &[(15, &[A]), (65, &[B]), (295, &[C]), (405, &[])];
    assert_eq!(broken(&adopted([A, B], sights)), [""; 0]);
    assert_eq!(broken(&adopted([A, A], sights)), ["tickets"]);
}

#[test]
fn a_ticket_that_is_adopted_late_is_found() {
    let sights: &[(Ms, &[&str])] = &[(15, &[A]), (62, &[]), (65, &[B]), (295, &[C]), (405, &[])];
    assert_eq!(broken(&adopted([A, B], sights)), ["tickets"]);
}
