//! Two processes of many tasks each, all contending for one lock.

use std::time::Duration;

use tests::{Contender, Turns, ask, assert_clean, shared_server, unique};

const TASKS: usize = 64;
const CONTEST: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_one_lock_fairly_and_never_at_once() {
    let server = shared_server();
    let name = unique("contest");
    let log = tempfile::NamedTempFile::new().unwrap();

    let (url, tasks, log_path) = (server.url(), TASKS.to_string(), log.path().to_str());
    let arguments = ["lock", &url, &name, &tasks, log_path.unwrap()];
    let contest = || Contender::start(env!("CARGO_BIN_EXE_participant"), arguments);
    let mut contenders = [contest(), contest()];
    contenders.iter_mut().for_each(Contender::go);
    tokio::time::sleep(CONTEST).await;
    let had = Contender::turns_of(contenders);

    let turns = Turns::read(log.path()).unwrap();
    turns.check_exclusive().unwrap();
    let all = turns.all().len();
    assert_eq!(all, had);
    let (processes, owners) = (turns.per_process(), turns.per_owner());
    println!("{all} turns by {processes:?}");
    assert_eq!((processes.len(), owners.len()), (2, 2 * TASKS));
    for (process, had) in &processes {
        assert!(had * 5 >= all, "{process} had {had} turns of {all}");
        // The tasks of a process take turns, so no task waits much longer than the others.
        let of_it = || owners.iter().filter(|((other, _), _)| other == process);
        let rarest = of_it().map(|(_, had)| had).min().unwrap();
        let fair = had / TASKS;
        assert!(rarest * 2 >= fair, "a task had {rarest} turns, not {fair}");
    }

    let redis = server.connect().await.unwrap();
    let counter = format!("{name}:inside");
    let left: i64 = ask(&redis, &["GETDEL", &counter]).await;
    assert_eq!(left, 0);
    assert_clean(&server, &name, []).await;
}
