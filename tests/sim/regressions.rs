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

/// The rule was wrong: a process that stood still read that it had a lock after the key was evicted, and
/// after another had taken it.
#[test]
fn a_grant_that_is_read_late_may_have_been_forgotten_since() {
    replay(
        r#"{"seed":1795383966006617,"terms":{"latency":[1,3],"lease":30000,"response":3000,"connect":500,"poll":1000,"linger":1000,"waiter":600,"skew":[-500,900,0]},"things":["Fair","Spin"],"hosts":[[[{"Turn":{"thing":0,"after":61,"strong":false,"wait":null,"lease":917,"renew":false,"cut":null,"hold":1028,"meanwhile":"Reenter","end":"Unlock"}},{"Turn":{"thing":1,"after":115,"strong":false,"wait":null,"lease":1061,"renew":true,"cut":null,"hold":145,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":1,"after":62,"strong":true,"wait":null,"lease":null,"renew":true,"cut":null,"hold":130,"meanwhile":"Nest","end":"Unlock"}},{"Turn":{"thing":1,"after":400,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":112,"meanwhile":"Nothing","end":"Drop"}}],[{"Turn":{"thing":1,"after":124,"strong":true,"wait":null,"lease":1669,"renew":false,"cut":null,"hold":114,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":162,"strong":true,"wait":0,"lease":1084,"renew":false,"cut":null,"hold":1403,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":0,"after":367,"strong":true,"wait":null,"lease":null,"renew":true,"cut":null,"hold":55,"meanwhile":"Nothing","end":"Drop"}}],[{"Turn":{"thing":1,"after":62,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":11,"meanwhile":"Nothing","end":"Drop"}},{"Turn":{"thing":1,"after":62,"strong":false,"wait":null,"lease":722,"renew":false,"cut":{"After":5},"hold":176,"meanwhile":"Nothing","end":"Unlock"}},{"Turn":{"thing":1,"after":158,"strong":false,"wait":null,"lease":null,"renew":true,"cut":null,"hold":100,"meanwhile":"Nothing","end":"Drop"}}]],[],[[{"Turn":{"thing":0,"after":360,"strong":false,"wait":null,"lease":1129,"renew":true,"cut":null,"hold":59,"meanwhile":"Nothing","end":{"Cut":0}}},{"Turn":{"thing":1,"after":103,"strong":false,"wait":null,"lease":null,"renew":true,"cut":{"Polls":5},"hold":184,"meanwhile":"Nothing","end":"Drop"}}]]],"faults":[{"at":10,"what":{"PauseHost":{"host":1,"lasts":5618}}},{"at":592,"what":{"Partition":{"host":2,"up":false,"down":true,"lasts":5957}}},{"at":2051,"what":{"PauseHost":{"host":0,"lasts":4866}}},{"at":4027,"what":{"Evict":{"thing":1}}}]}"#,
    );
}
