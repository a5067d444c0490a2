//! Users who are refused what hosted services refuse, as docs/servers.md lists it.

use crate::{Stage, fair, fenced, latch, leased, plain, read_write};

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
    assert_eq!(services.len(), 6);
    for (service, refused) in services {
        let mut stage = Stage::open("hosted").await;
        let mut rights = vec!["+@all".to_owned(), "allchannels".to_owned()];
        rights.extend(refused.iter().map(|command| format!("-{command}")));
        let client = stage.client(&rights).await;
        let name = |what: &str| format!("{}:{what}", stage.world.name);
        let outcome = async {
            client.rlock(name("lock")).lock().await?.unlock().await?;
            fenced(&client, &name("fenced")).await?;
            read_write(&client, &name("rw")).await?;
            fair(&client, &name("fair")).await?;
            plain(&client, &name("plain")).await?;
            leased(&client, &name("leased")).await?;
            latch(&client, &name("latch")).await
        };
        outcome
            .await
            .unwrap_or_else(|error| panic!("{service}: {error}"));
        stage.clear().await;
    }
}
