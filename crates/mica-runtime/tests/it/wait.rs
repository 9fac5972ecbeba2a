//! Waiting for a state.

use std::time::Duration;

/// How long anything may take on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How often to look. Nothing depends on it.
const LOOK: Duration = Duration::from_millis(5);

/// Looks until there is something.
pub async fn eventually<T>(look: impl AsyncFn() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("it comes in time")
}
