//! Plans that once broke a rule, as small as they could be made.

use tests::sim::{Plan, run};

#[track_caller]
fn replay(plan: &str) {
    let plan: Plan = serde_json::from_str(plan).expect("a plan");
    let report = run(&plan);
    let broken: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The rule was wrong: the reply that would have told the client of the new server was cut.
#[test]
fn a_client_that_was_not_told_of_the_new_server_asks_the_old_one() {
    replay(
        r#"{"seed":1795383116006348,"terms":{"latency":[1,3],"lease":2000,"response":3000,"connect":500,"poll":3000,"linger":300,"waiter":600,"skew":[900,300,0]},"things":["Reentrant","ReadWrite","Fair",{"Latch":8}],"hosts":[[],[[{"CountDown":{"thing":3,"after":0,"by_guard":false}},{"Turn":{"thing":1,"after":0,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":33,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":2,"after":0,"strong":true,"wait":null,"lease":null,"renew":true,"cut":null,"hold":864,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":1,"after":1,"strong":true,"wait":null,"lease":null,"renew":true,"cut":null,"hold":186,"meanwhile":"Nothing","end":"Unlock"}},{"CountDown":{"thing":3,"after":1,"by_guard":true}},{"Turn":{"thing":2,"after":0,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":199,"meanwhile":"Nothing","end":"Unlock"}}]],[]],"faults":[{"at":140,"what":{"Cut":{"host":1,"after":8,"place":"Reply"}}},{"at":152,"what":{"Replace":{"lasts":2281}}}]}"#,
    );
}

/// The first try of a waiter that had left was answered, its leave was under way, and its runtime ended:
/// the next one took the waiter for one that was never queued.
#[test]
fn a_place_in_a_fair_queue_is_left_by_the_next_runtime() {
    replay(
        r#"{"seed":1795391614000270,"terms":{"latency":[1,10],"lease":2000,"response":3000,"connect":3000,"poll":1000,"linger":1000,"waiter":5000,"skew":[-500,-500,0]},"things":["ReadWrite","Fair"],"hosts":[[[{"Turn":{"thing":1,"after":0,"strong":false,"wait":3,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Reenter","end":"Unlock"}},{"Turn":{"thing":1,"after":0,"strong":false,"wait":21,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Reenter","end":"Unlock"}},{"Turn":{"thing":1,"after":0,"strong":false,"wait":1135,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":1,"after":0,"strong":false,"wait":0,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}}],[]],[],[],[[],[],[{"Turn":{"thing":0,"after":0,"strong":false,"wait":0,"lease":null,"renew":true,"cut":null,"hold":1997,"meanwhile":"Reenter","end":"Unlock"}}]],[]],"faults":[{"at":78,"what":{"EndRuntime":{"host":0}}}]}"#,
    );
}

/// The rule was wrong: Redisson takes back what is over by its own clock, which had been set forward.
#[test]
fn a_permit_is_taken_back_by_a_client_whose_clock_is_ahead() {
    replay(
        r#"{"seed":1795395221002080,"terms":{"latency":[1,3],"lease":2000,"response":3000,"connect":3000,"poll":1000,"linger":1000,"waiter":2000,"skew":[300,0,0]},"things":["Fair",{"Permits":2}],"hosts":[[[],[{"Turn":{"thing":1,"after":171,"strong":true,"wait":14,"lease":null,"renew":true,"cut":null,"hold":6,"meanwhile":"Reenter","end":"Unlock"}},{"Turn":{"thing":1,"after":9,"strong":false,"wait":15,"lease":null,"renew":true,"cut":null,"hold":15,"meanwhile":{"Extend":2172},"end":"Unlock"}},{"Turn":{"thing":1,"after":250,"strong":true,"wait":3000,"lease":null,"renew":true,"cut":null,"hold":29,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":222,"strong":false,"wait":8,"lease":null,"renew":true,"cut":null,"hold":15,"meanwhile":{"Extend":1058},"end":"Unlock"}}]],[],[[{"Turn":{"thing":0,"after":217,"strong":false,"wait":3000,"lease":null,"renew":true,"cut":null,"hold":18,"meanwhile":"Nest","end":"Unlock"}},{"Turn":{"thing":0,"after":255,"strong":false,"wait":3000,"lease":null,"renew":true,"cut":null,"hold":2,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":160,"strong":false,"wait":3000,"lease":null,"renew":true,"cut":null,"hold":175,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":0,"after":317,"strong":false,"wait":3000,"lease":null,"renew":true,"cut":null,"hold":24,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":336,"strong":false,"wait":221,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Reenter","end":"Drop"}}]]],"java":[1,2],"faults":[{"at":283,"what":{"SetWallClock":{"host":2,"by":130072}}}]}"#,
    );
    replay(
        r#"{"seed":1795395221007662,"terms":{"latency":[1,10],"lease":2000,"response":1000,"connect":3000,"poll":1000,"linger":1,"waiter":2000,"skew":[-500,0,0]},"things":[{"Permits":2},"Fenced"],"hosts":[[[],[{"Turn":{"thing":0,"after":5,"strong":true,"wait":3000,"lease":1154,"renew":true,"cut":null,"hold":2701,"meanwhile":"Nest","end":"Unlock"}}],[]],[[],[],[{"Turn":{"thing":0,"after":312,"strong":false,"wait":3000,"lease":1620,"renew":false,"cut":null,"hold":0,"meanwhile":"Reenter","end":"Unlock"}}]]],"java":[1],"faults":[{"at":116,"what":{"SetWallClock":{"host":1,"by":246863}}}]}"#,
    );
}

/// The rule was wrong: Redisson had its token before the server forgot it, and the reply came afterwards.
#[test]
fn a_token_is_forgotten_before_its_reply_comes() {
    replay(
        r#"{"seed":1795399524002822,"terms":{"latency":[2,40],"lease":600,"response":1000,"connect":500,"poll":1000,"linger":300,"waiter":600,"skew":[900,-500,0]},"things":["Fair","Fenced"],"hosts":[[[{"Turn":{"thing":1,"after":23,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":89,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":0,"strong":true,"wait":552,"lease":null,"renew":true,"cut":null,"hold":192,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":1,"after":29,"strong":true,"wait":null,"lease":null,"renew":true,"cut":null,"hold":85,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":23,"strong":true,"wait":null,"lease":null,"renew":true,"cut":null,"hold":195,"meanwhile":"Nothing","end":"Unlock"}}]],[[{"Turn":{"thing":1,"after":30,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":196,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":7,"strong":false,"wait":14,"lease":null,"renew":true,"cut":null,"hold":159,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":0,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":118,"meanwhile":"Nothing","end":"Unlock"}}]]],"java":[1],"faults":[{"at":64,"what":{"CrashHost":{"host":1,"silent":false,"lasts":2164}}},{"at":2598,"what":"Flush"}]}"#,
    );
}

/// The rule was wrong: a release was refused until the lease was over, and another reader still had the
/// lock.
#[test]
fn a_reader_whose_lease_is_over_is_named_in_a_lock_of_others() {
    replay(
        r#"{"seed":1795399524003480,"terms":{"latency":[2,40],"lease":10000,"response":3000,"connect":500,"poll":3000,"linger":1000,"waiter":600,"skew":[0,0,0]},"things":["ReadWrite"],"hosts":[[[{"Turn":{"thing":0,"after":5,"strong":false,"wait":1853,"lease":null,"renew":true,"cut":null,"hold":17,"meanwhile":"Nothing","end":"Unlock"}}]],[],[],[],[[],[{"Turn":{"thing":0,"after":15,"strong":false,"wait":1492,"lease":1528,"renew":false,"cut":null,"hold":29,"meanwhile":"Nothing","end":"Unlock"}}],[]]],"faults":[{"at":230,"what":{"Refuse":{"host":null,"with":"OutOfMemory","lasts":2932}}}]}"#,
    );
}

/// The rule was wrong: a task waits for another one of its process for as long as that one's guard is valid.
#[test]
fn a_task_waits_for_another_of_its_process_although_servers_forgot_its_lock() {
    replay(
        r#"{"seed":1795400672003681,"terms":{"latency":[1,10],"lease":2000,"response":500,"connect":3000,"poll":1000,"linger":300,"waiter":2000,"skew":[-900,900,0]},"things":["RedLock"],"hosts":[[],[[{"Turn":{"thing":0,"after":127,"strong":true,"wait":265,"lease":707,"renew":false,"cut":null,"hold":1847,"meanwhile":"Nest","end":{"Cut":3}}}],[],[{"Turn":{"thing":0,"after":360,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}}]],[]],"faults":[{"at":843,"what":{"Evict":{"thing":0}},"server":1},{"at":891,"what":{"Evict":{"thing":0}},"server":2}],"quorum":{"count":3,"timeout":60}}"#,
    );
}

/// The rule was wrong: Redisson sets a number of permits that was forgotten, and does not count the leases
/// that are left.
#[test]
fn a_number_of_permits_is_set_again_beside_their_leases() {
    replay(
        r#"{"seed":1795400672007132,"terms":{"latency":[1,1],"lease":2000,"response":1000,"connect":3000,"poll":1000,"linger":1000,"waiter":2000,"skew":[900,300,0]},"things":[{"Permits":3}],"hosts":[[],[[{"Turn":{"thing":0,"after":118,"strong":true,"wait":0,"lease":null,"renew":true,"cut":null,"hold":2155,"meanwhile":"Nest","end":"Unlock"}}],[{"Turn":{"thing":0,"after":50,"strong":false,"wait":196,"lease":null,"renew":true,"cut":null,"hold":143,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":0,"after":225,"strong":false,"wait":0,"lease":null,"renew":true,"cut":null,"hold":1066,"meanwhile":"Nothing","end":"Unlock"}}]],[[{"Turn":{"thing":0,"after":312,"strong":false,"wait":109,"lease":null,"renew":true,"cut":null,"hold":163,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":115,"strong":false,"wait":3000,"lease":null,"renew":true,"cut":null,"hold":94,"meanwhile":"Nothing","end":{"Cut":3}}}],[{"Turn":{"thing":0,"after":177,"strong":false,"wait":17,"lease":null,"renew":true,"cut":null,"hold":60,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":224,"strong":false,"wait":71,"lease":null,"renew":true,"cut":null,"hold":169,"meanwhile":"Nothing","end":"Unlock"}}]]],"java":[1,2],"faults":[{"at":104,"what":{"PauseHost":{"host":1,"lasts":3011}}},{"at":137,"what":{"Evict":{"thing":0}}},{"at":187,"what":{"PauseHost":{"host":1,"lasts":337}}}]}"#,
    );
}

/// The rule was wrong: of two locks as one the first is handed over, and the other one had later.
#[test]
fn several_locks_are_had_later_than_the_first_of_them() {
    replay(
        r#"{"seed":1795402330000083,"terms":{"latency":[1,3],"lease":600,"response":500,"connect":500,"poll":1000,"linger":1000,"waiter":5000,"skew":[0,300,0]},"things":["ReadWrite","Multi","Fair",{"Semaphore":3},{"Latch":6}],"hosts":[[],[[{"Turn":{"thing":1,"after":18,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nest","end":"Unlock"}}],[{"Turn":{"thing":1,"after":1,"strong":true,"wait":null,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":1,"after":6,"strong":true,"wait":null,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Drop"}}]],[]],"faults":[]}"#,
    );
}

/// Redisson had dropped the waiter, and what is noted of it outlived its leave.
#[test]
fn the_note_of_a_waiter_that_redisson_dropped_goes_when_it_leaves() {
    replay(
        r#"{"seed":1795402330000709,"terms":{"latency":[2,40],"lease":30000,"response":500,"connect":3000,"poll":3000,"linger":300,"waiter":600,"skew":[300,0,0]},"things":[{"Semaphore":2},"Fair"],"hosts":[[[{"Turn":{"thing":0,"after":2,"strong":true,"wait":0,"lease":859,"renew":false,"cut":null,"hold":873,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":13,"strong":false,"wait":0,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":11,"strong":true,"wait":0,"lease":1421,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Drop"}}]],[[{"Turn":{"thing":0,"after":4,"strong":true,"wait":825,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":{"Cut":2}}},{"Turn":{"thing":0,"after":3,"strong":true,"wait":2,"lease":241,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":28,"strong":false,"wait":2116,"lease":1434,"renew":true,"cut":{"Polls":6},"hold":1,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":2,"strong":false,"wait":13,"lease":242,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":9,"strong":true,"wait":21,"lease":1179,"renew":false,"cut":null,"hold":0,"meanwhile":"Nothing","end":{"Cut":3}}}],[{"Turn":{"thing":1,"after":14,"strong":false,"wait":0,"lease":241,"renew":false,"cut":null,"hold":625,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":25,"strong":false,"wait":286,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":22,"strong":false,"wait":14,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":{"Cut":0}}},{"Turn":{"thing":0,"after":25,"strong":true,"wait":0,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":1,"after":25,"strong":true,"wait":16,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":13,"strong":false,"wait":17,"lease":820,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":15,"strong":true,"wait":0,"lease":1513,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":1,"after":15,"strong":true,"wait":0,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":8,"strong":true,"wait":0,"lease":365,"renew":false,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}}]],[[{"Turn":{"thing":0,"after":6,"strong":false,"wait":0,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":0,"strong":false,"wait":2227,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":30,"strong":true,"wait":3000,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}}]]],"java":[2],"faults":[{"at":260,"what":{"Replace":{"lasts":556}}},{"at":291,"what":{"SetWallClock":{"host":2,"by":78365}}}]}"#,
    );
    replay(
        r#"{"seed":1795402330002252,"terms":{"latency":[2,40],"lease":30000,"response":3000,"connect":500,"poll":1000,"linger":1,"waiter":5000,"skew":[900,0,0]},"things":["Fair","Fair"],"hosts":[[[{"Turn":{"thing":0,"after":14,"strong":false,"wait":10,"lease":473,"renew":false,"cut":null,"hold":755,"meanwhile":"Reenter","end":"Unlock"}},{"Turn":{"thing":0,"after":12,"strong":false,"wait":884,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}}],[],[{"Turn":{"thing":0,"after":15,"strong":false,"wait":64,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":11,"strong":true,"wait":15,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":24,"strong":true,"wait":2061,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":{"Extend":2028},"end":"Unlock"}}]],[],[[],[],[{"Turn":{"thing":1,"after":0,"strong":false,"wait":3000,"lease":1697,"renew":false,"cut":{"Polls":3},"hold":1983,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":8,"strong":false,"wait":2998,"lease":539,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":23,"strong":true,"wait":3000,"lease":554,"renew":true,"cut":null,"hold":2537,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":23,"strong":false,"wait":286,"lease":616,"renew":false,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Drop"}}]]],"java":[1,2],"faults":[{"at":381,"what":{"PauseHost":{"host":0,"lasts":3855}}},{"at":3447,"what":{"CrashServer":{"keeps":true,"silent":false,"lasts":35}}}]}"#,
    );
}

/// The rule was wrong: a try for a RedLock gives back what it had when its process goes on.
#[test]
fn a_try_gives_back_its_part_after_its_process_stood_still() {
    replay(
        r#"{"seed":1795412717001225,"terms":{"latency":[2,40],"lease":2000,"response":1000,"connect":500,"poll":1000,"linger":1,"waiter":5000,"skew":[0,0,0]},"things":["RedLock"],"hosts":[[],[[],[],[{"Turn":{"thing":0,"after":0,"strong":true,"wait":225,"lease":null,"renew":true,"cut":null,"hold":25,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":21,"strong":false,"wait":0,"lease":null,"renew":true,"cut":null,"hold":15,"meanwhile":"Nest","end":"Drop"}}]],[]],"faults":[{"at":205,"what":{"Evict":{"thing":0}}},{"at":292,"what":{"PauseHost":{"host":1,"lasts":1086}}}],"quorum":{"count":5,"timeout":240}}"#,
    );
}

/// A process of Redisson's stood still while the key was evicted and given to another, and then read that
/// it had the lock: the rule `exclusion` took that for two holders.
#[test]
fn a_late_reply_to_a_process_that_stood_still_was_taken_for_a_second_holder() {
    replay(
        r#"{"seed":1795417677005087,"terms":{"latency":[1,10],"lease":600,"response":3000,"connect":500,"poll":1000,"linger":300,"waiter":2000,"skew":[300,0,0]},"things":["Fenced"],"hosts":[[[{"Turn":{"thing":0,"after":1,"strong":false,"wait":120,"lease":null,"renew":true,"cut":null,"hold":19,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":1,"strong":false,"wait":0,"lease":null,"renew":true,"cut":null,"hold":30,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":1,"strong":false,"wait":0,"lease":null,"renew":true,"cut":null,"hold":4,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":0,"strong":true,"wait":null,"lease":null,"renew":true,"cut":null,"hold":20,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":0,"strong":true,"wait":null,"lease":null,"renew":true,"cut":{"Polls":3},"hold":5,"meanwhile":"Nest","end":"Unlock"}}]],[[{"Turn":{"thing":0,"after":1,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":12,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":0,"after":0,"strong":false,"wait":0,"lease":null,"renew":true,"cut":null,"hold":17,"meanwhile":"Nest","end":"Unlock"}},{"Turn":{"thing":0,"after":0,"strong":true,"wait":null,"lease":null,"renew":true,"cut":null,"hold":21,"meanwhile":"Nest","end":"Unlock"}}]]],"java":[1],"faults":[{"at":185,"what":{"PauseHost":{"host":1,"lasts":3780}}},{"at":202,"what":{"Slow":{"host":0,"more":302,"lasts":1460}}},{"at":1117,"what":{"PauseHost":{"host":1,"lasts":1920}}},{"at":1873,"what":{"Evict":{"thing":0}}}]}"#,
    );
}

/// The rule was wrong: the runtime ended in the middle of a shut-down, with the last handle of the client.
#[test]
fn permits_of_a_shut_down_that_ended_with_its_runtime_are_not_given_back() {
    replay(
        r#"{"seed":1795434921001941,"terms":{"latency":[1,10],"lease":2000,"response":500,"connect":500,"poll":1000,"linger":1,"waiter":2000,"skew":[-900,-500,0]},"things":[{"Semaphore":2}],"hosts":[[[{"Turn":{"thing":0,"after":6,"strong":true,"wait":2935,"lease":278,"renew":false,"cut":null,"hold":254,"meanwhile":{"Extend":2035},"end":{"Cut":0}}}],[]],[[{"Turn":{"thing":0,"after":3,"strong":false,"wait":11,"lease":805,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":5,"strong":false,"wait":18,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nest","end":"Drop"}},{"ShutDown":{"after":3,"drain":283}}]]],"faults":[{"at":64,"what":{"EndRuntime":{"host":1}}}]}"#,
    );
}

/// The rule was wrong: a hold whose key was evicted is handed over until its process notices.
#[test]
fn a_hold_that_was_evicted_is_handed_over_for_a_moment() {
    replay(
        r#"{"seed":1795447673003142,"terms":{"latency":[1,1],"lease":600,"response":3000,"connect":500,"poll":1000,"linger":1000,"waiter":2000,"skew":[900,0,0]},"things":["Reentrant","Fenced"],"hosts":[[[{"Turn":{"thing":0,"after":0,"strong":true,"wait":null,"lease":957,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}}],[],[{"Turn":{"thing":1,"after":0,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":1,"strong":true,"wait":234,"lease":957,"renew":true,"cut":null,"hold":2,"meanwhile":"Nothing","end":"Drop"}}]],[[{"Turn":{"thing":1,"after":0,"strong":false,"wait":null,"lease":957,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":1,"strong":false,"wait":null,"lease":957,"renew":true,"cut":null,"hold":2,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":0,"after":0,"strong":false,"wait":null,"lease":957,"renew":true,"cut":null,"hold":4,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":0,"after":1,"strong":false,"wait":null,"lease":957,"renew":true,"cut":null,"hold":4,"meanwhile":"Nothing","end":"Drop"}}]]],"faults":[{"at":10,"what":{"Evict":{"thing":1}}},{"at":17,"what":{"Evict":{"thing":0}}}]}"#,
    );
    replay(
        r#"{"seed":1795447673005749,"terms":{"latency":[1,3],"lease":30000,"response":1000,"connect":3000,"poll":1000,"linger":1000,"waiter":2000,"skew":[300,-900,0]},"things":["Reentrant","Fair"],"hosts":[[[{"Turn":{"thing":1,"after":1,"strong":true,"wait":0,"lease":null,"renew":true,"cut":null,"hold":2,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":1,"strong":false,"wait":0,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Reenter","end":"Unlock"}},{"Turn":{"thing":0,"after":0,"strong":false,"wait":3,"lease":null,"renew":true,"cut":null,"hold":64,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":1,"after":1,"strong":false,"wait":2888,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":1,"strong":false,"wait":12,"lease":null,"renew":true,"cut":null,"hold":4,"meanwhile":{"Extend":2049},"end":"Unlock"}}],[]],[[{"Turn":{"thing":1,"after":0,"strong":true,"wait":0,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":0,"after":0,"strong":false,"wait":0,"lease":null,"renew":true,"cut":{"After":38},"hold":0,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":0,"strong":true,"wait":215,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":0,"after":0,"strong":true,"wait":2046,"lease":null,"renew":true,"cut":null,"hold":4,"meanwhile":"Body","end":"Unlock"}}]]],"faults":[{"at":39,"what":{"Evict":{"thing":0}}}]}"#,
    );
}

/// The rule was wrong: the counter was lost, and the clock set back by as much as had passed since.
#[test]
fn a_token_is_given_again_when_its_counter_is_lost_and_the_clock_set_back() {
    replay(
        r#"{"seed":1795447673000323,"terms":{"latency":[1,1],"lease":2000,"response":1000,"connect":3000,"poll":1000,"linger":300,"waiter":600,"skew":[-500,-900,0]},"things":["Fenced","Fenced"],"hosts":[[[],[],[{"Turn":{"thing":0,"after":1,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":{"Extend":1456},"end":"Unlock"}}],[]],[[],[],[],[{"Turn":{"thing":1,"after":1,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":1,"strong":true,"wait":null,"lease":null,"renew":true,"cut":null,"hold":0,"meanwhile":{"Extend":915},"end":"Unlock"}},{"Turn":{"thing":1,"after":1,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":1,"after":1,"strong":true,"wait":null,"lease":null,"renew":true,"cut":{"After":38},"hold":1226,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":0,"strong":false,"wait":null,"lease":null,"renew":true,"cut":{"Polls":5},"hold":1,"meanwhile":"Nothing","end":"Unlock"}}]]],"faults":[{"at":17,"what":{"Cut":{"host":1,"after":7,"place":"Reply"}}},{"at":17,"what":{"Evict":{"thing":0}}},{"at":20,"what":{"SetClock":{"by":-54}}},{"at":28,"what":"Flush"},{"at":50,"what":"ForgetScripts"}]}"#,
    );
}

/// The rule was wrong: Redisson gave back permits of a number that was evicted since.
#[test]
fn permits_that_redisson_gives_back_late_add_to_a_new_number() {
    replay(
        r#"{"seed":1795448452002166,"terms":{"latency":[1,1],"lease":600,"response":1000,"connect":500,"poll":3000,"linger":1,"waiter":2000,"skew":[-900,300,0]},"things":[{"Semaphore":3}],"hosts":[[],[[{"Turn":{"thing":0,"after":30,"strong":false,"wait":174,"lease":1213,"renew":true,"cut":null,"hold":8,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":22,"strong":false,"wait":7,"lease":1119,"renew":false,"cut":null,"hold":151,"meanwhile":{"Extend":1439},"end":{"Cut":0}}}],[{"Turn":{"thing":0,"after":7,"strong":false,"wait":296,"lease":null,"renew":true,"cut":null,"hold":58,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":3,"strong":false,"wait":6,"lease":null,"renew":true,"cut":null,"hold":118,"meanwhile":{"Extend":816},"end":"Unlock"}}],[{"Turn":{"thing":0,"after":25,"strong":false,"wait":93,"lease":1129,"renew":true,"cut":null,"hold":84,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":10,"strong":true,"wait":356,"lease":null,"renew":true,"cut":null,"hold":122,"meanwhile":"Nothing","end":"Unlock"}}]]],"java":[1],"faults":[{"at":60,"what":{"Evict":{"thing":0}}}]}"#,
    );
}

/// The rule was wrong: the process stood still when the newer server answered.
#[test]
fn a_process_that_stood_still_asks_the_server_that_it_knows() {
    replay(
        r#"{"seed":1795733684000184,"terms":{"latency":[1,3],"lease":2000,"response":500,"connect":500,"poll":1000,"linger":300,"waiter":2000,"skew":[0,300,0]},"things":["Fenced"],"hosts":[[],[[{"Turn":{"thing":0,"after":0,"strong":true,"wait":778,"lease":1255,"renew":false,"cut":null,"hold":2,"meanwhile":"Nothing","end":{"Cut":0}}}],[],[]]],"faults":[{"at":15,"what":{"Replace":{"lasts":444}}},{"at":22,"what":{"PauseHost":{"host":1,"lasts":3534}}},{"at":42,"what":{"PauseHost":{"host":1,"lasts":98}}}]}"#,
    );
}

/// A connection that had never answered fell silent, and the first command on it was the load of a script for
/// a release: all calls behind that command waited without end.
#[test]
fn a_connection_that_never_answered_is_given_up() {
    replay(
        r#"{"seed":1795734285000032,"terms":{"latency":[2,40],"lease":10000,"response":1000,"connect":500,"poll":1000,"linger":300,"waiter":5000,"skew":[300,900,0]},"things":["RedLock","RedLock","Reentrant"],"hosts":[[],[],[[],[{"Turn":{"thing":0,"after":0,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":2974,"meanwhile":"Nothing","end":"Drop"}}]]],"faults":[{"at":1925,"what":{"CrashServer":{"keeps":true,"silent":false,"lasts":36}},"server":2},{"at":2235,"what":{"CrashServer":{"keeps":true,"silent":true,"lasts":5795}},"server":2}],"quorum":{"count":3,"timeout":250}}"#,
    );
}

/// The rule was wrong: it took the order in which two asked for that in which they had the lock, where both had it in
/// one millisecond.
#[test]
fn who_asked_last_had_the_lock_first_within_a_millisecond() {
    replay(
        r#"{"seed":1796051931000026,"terms":{"latency":[1,3],"lease":10000,"response":3000,"connect":500,"poll":3000,"linger":1000,"waiter":5000,"skew":[0,-900,0]},"things":["Fenced","Reentrant",{"Barrier":4}],"hosts":[[[{"Turn":{"thing":0,"after":1,"strong":true,"wait":55,"lease":374,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":1,"after":1,"strong":false,"wait":null,"lease":374,"renew":true,"cut":{"Polls":6},"hold":1,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":1,"strong":false,"wait":2612,"lease":374,"renew":true,"cut":{"After":24},"hold":1206,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":0,"strong":true,"wait":4,"lease":374,"renew":true,"cut":{"After":16},"hold":3,"meanwhile":"Nothing","end":{"Cut":2}}}],[{"Turn":{"thing":0,"after":1,"strong":false,"wait":null,"lease":374,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":1,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":1,"strong":true,"wait":0,"lease":374,"renew":true,"cut":null,"hold":0,"meanwhile":"Nothing","end":"Drop"}}],[{"Turn":{"thing":1,"after":0,"strong":false,"wait":0,"lease":374,"renew":true,"cut":null,"hold":1,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":1,"after":1,"strong":false,"wait":223,"lease":374,"renew":true,"cut":null,"hold":1878,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":1,"strong":false,"wait":0,"lease":374,"renew":true,"cut":{"Polls":0},"hold":4,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":0,"strong":true,"wait":6,"lease":374,"renew":true,"cut":null,"hold":1374,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":1,"strong":true,"wait":0,"lease":1080,"renew":true,"cut":{"Polls":3},"hold":4,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":1,"strong":false,"wait":null,"lease":374,"renew":true,"cut":{"Polls":1},"hold":1,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":1,"after":1,"strong":true,"wait":0,"lease":374,"renew":true,"cut":{"Polls":0},"hold":3,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":1,"after":0,"strong":false,"wait":879,"lease":374,"renew":true,"cut":{"Polls":4},"hold":0,"meanwhile":"Nothing","end":"Unlock"}}],[{"Turn":{"thing":0,"after":0,"strong":false,"wait":15,"lease":374,"renew":true,"cut":null,"hold":3,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":1,"strong":true,"wait":null,"lease":374,"renew":true,"cut":null,"hold":4,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":1,"strong":false,"wait":null,"lease":374,"renew":true,"cut":{"Polls":0},"hold":0,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":0,"strong":false,"wait":null,"lease":374,"renew":true,"cut":{"After":0},"hold":0,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":1,"strong":true,"wait":20,"lease":374,"renew":true,"cut":{"Polls":4},"hold":2,"meanwhile":"Nothing","end":"Drop"}}],[{"Turn":{"thing":0,"after":0,"strong":true,"wait":null,"lease":null,"renew":true,"cut":{"After":42},"hold":2,"meanwhile":"Nothing","end":{"Cut":0}}},{"Turn":{"thing":1,"after":1,"strong":false,"wait":0,"lease":374,"renew":true,"cut":{"After":51},"hold":0,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":0,"strong":true,"wait":null,"lease":374,"renew":true,"cut":null,"hold":4,"meanwhile":"Nothing","end":"Drop"}}],[{"Turn":{"thing":0,"after":0,"strong":false,"wait":null,"lease":374,"renew":true,"cut":null,"hold":3,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":1,"after":1,"strong":true,"wait":null,"lease":374,"renew":true,"cut":null,"hold":4,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":0,"after":0,"strong":true,"wait":169,"lease":374,"renew":true,"cut":null,"hold":2,"meanwhile":"Nothing","end":"Unlock"}}],[],[{"Arrive":{"thing":2,"after":27,"wait":2066}},{"Arrive":{"thing":2,"after":84,"wait":441}},{"Arrive":{"thing":2,"after":100,"wait":3433}}],[],[],[{"Arrive":{"thing":2,"after":250,"wait":777}},{"Arrive":{"thing":2,"after":9,"wait":4831}}]]],"faults":[{"at":14,"what":{"CrashServer":{"keeps":true,"silent":false,"lasts":14}}},{"at":40,"what":{"Cut":{"host":0,"after":8,"place":"Middle"}}},{"at":41,"what":{"CrashServer":{"keeps":true,"silent":false,"lasts":4512}}},{"at":74,"what":{"Cut":{"host":0,"after":7,"place":"After"}}}]}"#,
    );
}
