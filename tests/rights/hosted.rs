//! Users who are refused what hosted services refuse, as docs/servers.md lists it.

use crate::{KINDS, Stage, use_of};

const PAGE: &str = include_str!("../../docs/servers.md");

/// What each service refuses.
fn services() -> Vec<(&'static str, Vec<String>)> {
    let (_, table) = PAGE.split_once("| refuses, of all commands |").unwrap();
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let mut services: Vec<(_, Vec<String>)> = Vec::new();
    for row in rows {
        let mut cells = row.splitn(4, " | ");
        let (name, refused) = (cells.next().unwrap(), cells.next().unwrap());
        let words = refused.trim_matches('`').split(' ');
        let refused = match refused {
            "the same" => services.last().unwrap().1.clone(),
            _ => words.map(|word| word.replace('\\', "")).collect(),
        };
        services.push((name, refused));
    }
    services
}

#[tokio::test]
async fn every_kind_of_lock_works_where_a_hosted_service_refuses_commands() {
    let services = services();
    assert_eq!(services.len(), 9);
    for (service, refused) in services {
        let mut stage = Stage::open("hosted").await;
        let mut rights = vec!["+@all".to_owned(), "allchannels".to_owned()];
        rights.extend(refused.iter().map(|command| format!("-{command}")));
        let client = stage.client(&rights).await;
        for kind in KINDS {
            let name = format!("{}:{kind:?}", stage.world.name);
            let used = use_of(kind, &client, &name).await;
            used.unwrap_or_else(|error| panic!("{service}: {kind:?}: {error}"));
        }
        stage.clear().await;
    }
}
