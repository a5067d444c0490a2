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
