//! Wrong usage is 64, says why, and asks Redis nothing.

use crate::command::{Command, redlock};

/// Nobody listens there.
const NOWHERE: &str = "redis://127.0.0.1:1";

#[tokio::test]
async fn wrong_usage_is_64() {
    for arguments in [
        &[][..],
        &["run"],
        &["run", "k"],
        &["run", "k", "--no-such-option", "true"],
        &["run", "-n", "-w", "1", "k", "true"],
        &["run", "-s", "--kind", "fair", "k", "true"],
        &["run", "-w", "soon", "k", "true"],
        &["run", "--kill-after", "1e19", "k", "true"],
        &["wait", "k", "--every", "0"],
        &["watch", "k", "--every", "0s"],
        &["run", "--permits", "2", "k", "true"],
        &["run", "--kind", "read", "--min-hold", "1s", "k", "true"],
        &["run", "--kind", "mutex", "k", "true"],
        &["run", "--ack", "most", "k", "true"],
        &["run", "-c", "true", "k", "true"],
        &["--password-file", "/no/such/file", "run", "k", "true"],
        &["--user", "me", "run", "k", "true"],
        &["unlock", "k"],
        &["unlock", "--force", "k"],
        &["latch", "k", "set", "some"],
        &["nothing"],
    ] {
        let ended = Command::start(NOWHERE, arguments).ended().await;
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (64, ""),
            "{arguments:?}: {ended:?}"
        );
        assert!(!ended.err.is_empty(), "{arguments:?}");
    }
}

#[tokio::test]
async fn what_the_library_refuses_is_64_too() {
    for arguments in [
        &["run", "", "true"][..],
        &["run", "k", "--lease", "0s", "true"],
        &["run", "k", "--lease", "10s", "--max-hold", "1s", "true"],
    ] {
        let ended = Command::start(&tests::shared_server().url(), arguments)
            .ended()
            .await;
        assert_eq!(ended.code, 64, "{arguments:?}: {ended:?}");
    }
}

#[tokio::test]
async fn errors_are_objects_for_programs() {
    let ended = redlock(["--json", "run", "", "true"]).await;
    let object: serde_json::Value = serde_json::from_str(&ended.err).unwrap();
    assert_eq!(object["exit"], 64);
    assert!(
        object["error"].as_str().unwrap().contains("empty"),
        "{object}"
    );
}

#[tokio::test]
async fn help_names_each_exit_code_and_what_sigkill_leaves() {
    let ended = redlock(["--help"]).await;
    assert_eq!(ended.code, 0);
    for code in ["64", "69", "75", "76", "77", "126"] {
        assert!(ended.out.contains(code), "{code}");
    }
    let ended = redlock(["run", "--help"]).await;
    assert!(ended.out.contains("SIGKILL") && ended.out.contains("WITHOUT the lock"));
}
