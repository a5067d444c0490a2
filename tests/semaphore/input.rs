//! Invalid input is refused, and changes nothing.

use std::time::Duration;

use redlock_rt::{ErrorKind, PermitOptions};

use crate::stage::Stage;

const TOO_MANY: u32 = i32::MAX as u32 + 1;
const UNKNOWN: &str = "00112233445566778899aabbccddeeff";

#[tokio::test]
async fn numbers_that_cannot_be_are_refused() {
    let stage = Stage::open("numbers").await;
    let semaphore = stage.semaphore(2).await;
    let leased = stage.client.permit_expirable_semaphore(&stage.name);
    stage.proxy.mark();
    let error = |error: redlock_rt::Error| {
        assert!(error.is_bad_input(), "{error}");
        assert_eq!(error.name(), Some(stage.name.as_str()), "{error}");
    };
    for bad in [0, TOO_MANY, u32::MAX] {
        error(semaphore.acquire_many(bad).await.unwrap_err());
        error(semaphore.try_acquire_many(bad).await.unwrap_err());
        error(semaphore.release(bad).await.unwrap_err());
        error(leased.acquire_many(bad).await.unwrap_err());
        error(leased.try_acquire_many(bad).await.unwrap_err());
    }
    let many = leased.acquire_many(1001).await;
    error(many.unwrap_err());
    for bad in [Duration::ZERO, Duration::from_millis(900_000_000_000_000)] {
        let options = PermitOptions::new().lease(bad);
        error(leased.acquire_with(options).await.unwrap_err());
        error(leased.update_lease(UNKNOWN, bad).await.unwrap_err());
    }
    // A caller would rely on a lease that these permits do not have.
    for leased in [
        PermitOptions::new().lease(Duration::from_secs(1)),
        PermitOptions::new().renew(true),
        PermitOptions::new().max_hold(Duration::from_secs(60)),
    ] {
        error(semaphore.acquire_with(leased).await.unwrap_err());
    }
    assert_eq!(stage.proxy.counts().len(), 0);
    stage.end(2).await;
}

#[tokio::test]
async fn a_string_that_is_not_a_number_is_of_another_type() {
    let stage = Stage::open("type").await;
    let semaphore = stage.client.semaphore(&stage.name);
    let leased = stage.client.permit_expirable_semaphore(&stage.name);
    for value in [
        "many",
        "1.5",
        "0x10",
        "nan",
        " 5",
        "",
        // Lua takes these for numbers, and Redis does not, or Lua rounds them.
        "007",
        "-0",
        "12345678901234567890",
        "9223372036854775807",
    ] {
        let _: () = stage.redis(&["SET", &stage.name, value]).await;
        let kinds = [
            semaphore.acquire().await.unwrap_err().kind(),
            semaphore.available_permits().await.unwrap_err().kind(),
            semaphore.release(1).await.unwrap_err().kind(),
            semaphore.drain().await.unwrap_err().kind(),
            leased.acquire().await.unwrap_err().kind(),
            leased.available_permits().await.unwrap_err().kind(),
            leased.set_permits(1).await.unwrap_err().kind(),
            leased.add_permits(1).await.unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::WrongType; 8], "{value:?}");
        let there: String = stage.redis(&["GET", &stage.name]).await;
        assert_eq!(there, value);
    }
    let holds: bool = stage.redis(&["EXISTS", &stage.holds_key()]).await;
    assert!(!holds);
    let _: () = stage.redis(&["SET", &stage.name, "0"]).await;
    stage.end(0).await;
}
