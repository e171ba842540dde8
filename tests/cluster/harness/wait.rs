//! Waiting for a condition.

use std::future::Future;
use std::time::Duration;

use kontiki::types::time;

/// How long anything may take on a machine that is busy with something else. No test waits for this to pass.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// Asks again and again until the answer is `Ok`. Panics with the last `Err` after [`DEADLINE`].
pub(crate) async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let start = time::now();
    loop {
        let problem = match ask().await {
            Ok(value) => return value,
            Err(problem) => problem,
        };
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}; last: {problem}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
