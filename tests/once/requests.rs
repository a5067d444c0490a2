//! Requests with an idempotency key.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redlock_rt::{Answer, Client, Error, ErrorKind, Idempotent, LockOptions};
use tests::{
    Backend, Embedded, Loss, Proxy, Redis, World, calls, eventually, shared_server, within,
};
use tokio::{
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
};

use crate::stage::{DEADLINE, Stage, waiting};

fn at_once() -> LockOptions {
    LockOptions::new().wait(Duration::ZERO)
}

async fn answer(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    Ok(bytes.to_vec())
}

async fn fail() -> Result<Vec<u8>, Error> {
    // Any error.
    Client::embedded().rlock("").lock().await.map(|_| vec![])
}

async fn never() -> Result<Vec<u8>, Error> {
    panic!("it was answered");
}

/// Runs in a separate task until a permit is added.
fn hold(request: &Idempotent, gate: &Arc<Semaphore>) -> JoinHandle<Result<Answer, Error>> {
    let (request, gate) = (request.clone(), Arc::clone(gate));
    tokio::spawn(async move {
        let body = async {
            gate.acquire().await.unwrap().forget();
            Ok(b"held".to_vec())
        };
        request.run(body).await
    })
}

async fn all_come_at_once<B: Backend>() {
    let stage = Stage::open::<B>("request-crowd").await;
    let clients = [stage.client(), stage.client()];
    let runs = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for at in 0..40 {
        let (request, runs) = (stage.request(&clients[at % 2]), Arc::clone(&runs));
        callers.spawn(async move {
            let body = async {
                let run = runs.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Error>(format!("run {run}").into_bytes())
            };
            request.run(body).await.unwrap()
        });
    }
    let answers = within(DEADLINE, callers.join_all()).await;
    let of = |answer: &Answer| answers.iter().filter(|one| *one == answer).count();
    let first = b"run 0".to_vec();
    assert_eq!(of(&Answer::First(first.clone())), 1);
    assert_eq!(of(&Answer::Stored(first)), 39);
    stage.assert_clean().await;
}

#[tokio::test]
async fn all_who_come_at_once_have_the_answer_of_the_first() {
    all_come_at_once::<Redis>().await;
    all_come_at_once::<Embedded>().await;
}

async fn bytes_come_back<B: Backend>() {
    let stage = Stage::open::<B>("request-bytes").await;
    let client = stage.client();
    let every: Vec<u8> = (0..=255).collect();
    for (at, bytes) in [vec![], every, vec![0xff; 64 * 1024]].iter().enumerate() {
        let request = client.idempotent(format!("{}:{at}", stage.name));
        let request = request.keep(crate::stage::KEEP);
        assert_eq!(
            request.run(answer(bytes)).await.unwrap(),
            Answer::First(bytes.clone())
        );
        assert_eq!(
            request.run(never()).await.unwrap(),
            Answer::Stored(bytes.clone())
        );
    }
    stage.assert_clean().await;
}

#[tokio::test]
async fn an_answer_comes_back_byte_by_byte() {
    bytes_come_back::<Redis>().await;
    bytes_come_back::<Embedded>().await;
}

#[tokio::test]
async fn an_error_of_the_body_opens_it_again() {
    let stage = Stage::open::<Redis>("request-error").await;
    let [one, other] = [stage.client(), stage.client()];
    let error = stage.request(&one).run(fail()).await.unwrap_err();
    assert!(error.is_bad_input(), "{error}");
    let too_long = vec![0; 64 * 1024 + 1];
    let error = stage
        .request(&one)
        .run(answer(&too_long))
        .await
        .unwrap_err();
    assert!(error.is_bad_input(), "{error}");
    let panics = tokio::spawn({
        let request = stage.request(&one);
        async move { request.run(never()).await }
    });
    assert!(panics.await.unwrap_err().is_panic());
    let answered = within(DEADLINE, stage.request(&other).run(answer(b"a"))).await;
    assert_eq!(answered.unwrap(), Answer::First(b"a".to_vec()));
    stage.assert_clean().await;
}

#[tokio::test]
async fn one_that_is_in_progress_is_waited_for_or_told() {
    let stage = Stage::open::<Redis>("request-progress").await;
    let [one, other] = [stage.client(), stage.client()];
    let gate = Arc::new(Semaphore::new(0));
    let first = hold(&stage.request(&one), &gate);
    let key = format!("idempotent:{}", stage.name);
    eventually(DEADLINE, async || {
        other.rlock(&key).is_locked().await.unwrap()
    })
    .await;
    let by = other.rlock(&key).holder().await.unwrap().unwrap();
    for client in [&one, &other] {
        let request = stage.request(client).options(at_once());
        let told = request.run(never()).await.unwrap();
        assert_eq!(told, Answer::InProgress(by.clone()));
    }
    let second = hold(&stage.request(&other), &gate);
    waiting(&other, 1).await;
    gate.add_permits(1);
    let held = b"held".to_vec();
    let answers = [first, second].map(|call| within(DEADLINE, call));
    let [first, second] = answers;
    assert_eq!(first.await.unwrap().unwrap(), Answer::First(held.clone()));
    assert_eq!(second.await.unwrap().unwrap(), Answer::Stored(held));
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_key_of_another_request_is_an_error_of_its_own() {
    let stage = Stage::open::<Redis>("request-other").await;
    let client = stage.client();
    let of = |request: &str| stage.request(&client).request(request);
    let gate = Arc::new(Semaphore::new(0));
    let first = hold(&of("pay 100"), &gate);
    let key = format!("idempotent:{}", stage.name);
    let other = stage.client();
    eventually(DEADLINE, async || {
        other.rlock(&key).is_locked().await.unwrap()
    })
    .await;
    let others_are_refused = async || {
        let nothing = stage.request(&other);
        for request in [nothing.clone(), nothing.request("pay 200")] {
            let error = within(DEADLINE, request.run(never())).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OtherRequest, "{error}");
            assert!(error.to_string().contains(&key), "{error}");
        }
    };
    others_are_refused().await;
    gate.add_permits(1);
    let held = b"held".to_vec();
    let first = within(DEADLINE, first).await.unwrap().unwrap();
    assert_eq!(first, Answer::First(held.clone()));
    others_are_refused().await;
    let again = of("pay 100").run(never()).await.unwrap();
    assert_eq!(again, Answer::Stored(held));
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_run_that_is_dropped_opens_it_again() {
    let stage = Stage::open::<Redis>("request-dropped").await;
    let [one, other] = [stage.client(), stage.client()];
    let (begun, begins) = tokio::sync::oneshot::channel();
    let first = tokio::spawn({
        let request = stage.request(&one);
        async move {
            let body = async {
                begun.send(()).unwrap();
                pending::<Result<Vec<u8>, Error>>().await
            };
            request.run(body).await
        }
    });
    begins.await.unwrap();
    let gate = Arc::new(Semaphore::new(1));
    let second = hold(&stage.request(&other), &gate);
    waiting(&other, 1).await;
    first.abort();
    let second = within(DEADLINE, second).await.unwrap().unwrap();
    assert_eq!(second, Answer::First(b"held".to_vec()));
    stage.assert_clean().await;
}

/// The work is done, so its answer is the caller's, and a log line tells of the rest.
#[tokio::test]
async fn an_answer_that_redis_lost_is_the_callers_nevertheless() {
    let stage = Stage::open::<Redis>("request-lost").await;
    let client = stage.client();
    let key = format!("idempotent:{}", stage.name);
    let body = async {
        let _: bool = stage.redis(&["DEL", &key]).await;
        Ok::<_, Error>(b"paid".to_vec())
    };
    let first = stage.request(&client).run(body).await.unwrap();
    assert_eq!(first, Answer::First(b"paid".to_vec()));
    let again = stage.request(&client).run(answer(b"again")).await.unwrap();
    assert_eq!(
        again,
        Answer::First(b"again".to_vec()),
        "nothing was stored"
    );
    stage.assert_clean().await;
}

#[tokio::test]
async fn an_answer_whose_reply_is_lost_is_stored_once() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let mut stage = Stage::of(World::on(&server, "request-lost-reply").await);
    let other = stage.client();
    stage.clients_connect_to(proxy.url());
    let client = stage.client_with(|builder| builder.response_timeout(DEADLINE / 4));
    for (at, loss) in Loss::ALL.into_iter().enumerate() {
        let key = format!("{}:{at}", stage.name);
        let request = |client: &Client| client.idempotent(&key).keep(crate::stage::KEEP);
        proxy.lose(loss, calls("once_acquire"), 1);
        proxy.lose(loss, calls("once_finish"), 1);
        let first = request(&client);
        let first = within(DEADLINE, first.run(answer(b"a"))).await.unwrap();
        assert_eq!(first, Answer::First(b"a".to_vec()), "{loss:?}");
        let stored = request(&other).run(never()).await.unwrap();
        assert_eq!(stored, Answer::Stored(b"a".to_vec()), "{loss:?}");
    }
    stage.assert_clean().await;
}

#[tokio::test]
async fn bad_keys_are_refused_before_anything_is_sent() {
    // Nobody listens there.
    let client = Client::builder()
        .url("redis://127.0.0.1:1")
        .build()
        .unwrap();
    let min_hold = LockOptions::new().min_hold(Duration::from_secs(1));
    let bad = [
        client.idempotent(""),
        client.idempotent(" "),
        client.idempotent("a\0b"),
        client.idempotent("x".repeat(502)),
        client.idempotent("key").keep(Duration::from_secs(1)),
        client.idempotent("key").options(min_hold),
    ];
    for request in bad {
        let error = within(DEADLINE, request.run(never())).await.unwrap_err();
        assert!(error.is_bad_input(), "{error}");
    }
    let longest = client.idempotent("x".repeat(501)).options(at_once());
    let error = within(DEADLINE, longest.run(never())).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
}

/// It ran, its answer was stored, and its caller got `Protocol`.
#[tokio::test]
async fn an_answer_that_cannot_be_read_from_its_json_is_that_of_the_caller_that_ran_it() {
    let stage = Stage::open::<Redis>("request-nan").await;
    let client = stage.client();
    let runs = AtomicUsize::new(0);
    let run = async || {
        let body = async {
            runs.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Error>(f64::NAN)
        };
        within(DEADLINE, stage.request(&client).run_json(body)).await
    };
    let first = run().await.unwrap();
    let is_it = matches!(&first, Answer::First(answer) if answer.is_nan());
    assert!(is_it, "{first:?}");
    // It was written as `null`.
    let error = run().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    stage.assert_clean().await;
}

/// A receipt whose JSON is less than it.
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Receipt {
    number: u64,
    #[serde(skip_serializing)]
    card: String,
}

#[tokio::test]
async fn a_field_that_is_not_written_is_there_for_the_caller_that_ran_it() {
    let stage = Stage::open::<Redis>("request-skipped").await;
    let client = stage.client();
    let receipt = || Receipt {
        number: 7,
        card: "4000".to_owned(),
    };
    let run = async || {
        let body = async { Ok::<_, Error>(receipt()) };
        within(DEADLINE, stage.request(&client).run_json(body)).await
    };
    assert_eq!(run().await.unwrap(), Answer::First(receipt()));
    let error = run().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    stage.assert_clean().await;
}

#[tokio::test]
async fn an_answer_as_json_is_read_again() {
    let stage = Stage::open::<Redis>("request-json").await;
    let client = stage.client();
    let receipt = ("größe".to_owned(), 7_u64);
    let run = async || {
        let body = async { Ok::<_, Error>(receipt.clone()) };
        stage.request(&client).run_json(body).await.unwrap()
    };
    assert_eq!(run().await, Answer::First(receipt.clone()));
    assert_eq!(run().await, Answer::Stored(receipt.clone()));
    let other = async { Ok::<_, Error>(7_u64) };
    let error = stage.request(&client).run_json(other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    stage.assert_clean().await;
}
