//! The thread: remembers when to look at which log, and cleans the one that needs it most.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::choice::{Dirt, Verdict, judge, time_until};
use super::pace::Pace;
use super::pass::{Stop, clean};
use super::{Compaction, State};
use crate::metadata::config::TopicConfig;
use crate::storage::PartitionLog;
use crate::types::time::wall_ms;
use crate::types::{TimestampMs, TopicPartition};

/// Until a log is looked at again that changed during a pass, or was not cleaned any further by it.
const RETRY_MS: TimestampMs = 5_000;

/// What is remembered of a compacted log.
#[derive(Default)]
struct Tracked {
    log: Weak<PartitionLog>,
    /// When to look at it; `None`: when there is news.
    look_ms: Option<TimestampMs>,
    /// The earliest delete horizon that the last pass came across.
    horizon_ms: Option<TimestampMs>,
    /// The configs under which a pass found it unreadable.
    uncleanable: Option<Arc<TopicConfig>>,
    dirty_ppm: u32,
    oldest_dirty_ms: Option<TimestampMs>,
}

#[derive(Default)]
struct Cleaner {
    tracked: BTreeMap<TopicPartition, Tracked>,
}

/// Runs until the news say `stopping`.
pub(in super::super) fn run(shared: &Compaction) {
    let mut cleaner = Cleaner::default();
    while let Some(logs) = cleaner.wait(shared) {
        for log in logs {
            cleaner.on_news(&log);
        }
        let chosen = cleaner.choose(wall_ms());
        cleaner.report(shared);
        if let Some((log, dirt)) = chosen {
            cleaner.clean(shared, &log, &dirt, wall_ms());
        }
    }
}

impl Cleaner {
    /// Until there is news, or a log to look at. `None` when the thread has to stop.
    fn wait(&self, shared: &Compaction) -> Option<Vec<Arc<PartitionLog>>> {
        let mut news = shared.news.work.lock();
        loop {
            if news.stopping {
                return None;
            }
            let next_ms = self.tracked.values().filter_map(|tracked| tracked.look_ms).min();
            let is_due = next_ms.is_some_and(|next_ms| next_ms <= wall_ms());
            if is_due || !news.logs.is_empty() {
                return Some(std::mem::take(&mut news.logs));
            }
            match next_ms {
                None => shared.news.wake.wait(&mut news),
                Some(next_ms) => {
                    shared.news.wake.wait_for(&mut news, time_until(next_ms, wall_ms()));
                }
            }
        }
    }

    fn on_news(&mut self, log: &Arc<PartitionLog>) {
        log.on_compaction_begun();
        let tracked = self.tracked.entry(log.name().clone()).or_default();
        tracked.log = Arc::downgrade(log);
        tracked.look_ms = Some(0);
    }

    /// Looks at every log whose time has come. Gives the one that needs cleaning most; the others stay due.
    fn choose(&mut self, now_ms: TimestampMs) -> Option<(Arc<PartitionLog>, Dirt)> {
        let mut chosen: Option<(Arc<PartitionLog>, Dirt)> = None;
        self.tracked.retain(|_, tracked| {
            let Some(log) = tracked.log.upgrade() else {
                return false;
            };
            if tracked.look_ms.is_none_or(|look_ms| look_ms > now_ms) {
                return true;
            }
            if let Some(config) = &tracked.uncleanable {
                if Arc::ptr_eq(config, &log.config()) {
                    tracked.look_ms = None;
                    return true;
                }
                tracked.uncleanable = None;
            }
            let dirt = match judge(&log, tracked.horizon_ms, now_ms) {
                Ok(Verdict::Forget) => return false,
                Ok(Verdict::Wait { until_ms, dirt }) => {
                    tracked.look_ms = until_ms;
                    tracked.notice(dirt.as_ref());
                    return true;
                }
                Ok(Verdict::Roll) => {
                    tracked.look_ms = Some(now_ms + RETRY_MS);
                    if let Err(error) = log.roll_active() {
                        tracing::warn!(log = %log.name(), %error, "cannot end a segment to compact it");
                    }
                    return true;
                }
                Ok(Verdict::Clean(dirt)) => dirt,
                Err(error) => {
                    // What has changed under the look is looked at again; what is damaged, a pass will find.
                    tracing::warn!(log = %log.name(), %error, "cannot see what to compact");
                    tracked.look_ms = Some(now_ms + RETRY_MS);
                    return true;
                }
            };
            tracked.notice(Some(&dirt));
            let rank = |dirt: &Dirt| (dirt.is_due, dirt.ratio_ppm());
            if chosen.as_ref().is_none_or(|(_, best)| rank(&dirt) > rank(best)) {
                chosen = Some((log, dirt));
            }
            true
        });
        chosen
    }

    fn clean(
        &mut self,
        shared: &Compaction,
        log: &Arc<PartitionLog>,
        dirt: &Dirt,
        now_ms: TimestampMs,
    ) {
        let mut pace = Pace::new(shared);
        let done = clean(log, dirt, now_ms, shared.map_bytes_max(), &mut pace);
        let Some(tracked) = self.tracked.get_mut(log.name()) else {
            return;
        };
        match done {
            Ok(done) => {
                tracing::debug!(log = %log.name(), range = ?dirt.range, ?done, "compacted");
                log.set_clean_end(&dirt.view, done.clean_end);
                tracked.horizon_ms = done.seen.next_horizon_ms;
                let is_further = done.clean_end > dirt.range.start || dirt.range.is_empty();
                tracked.look_ms = Some(if is_further { now_ms } else { now_ms + RETRY_MS });
                let mut state = shared.state.lock();
                state.passes += 1;
                state.records_without_key += done.seen.without_key;
            }
            Err(Stop::Interrupted) => tracked.look_ms = Some(now_ms + RETRY_MS),
            Err(Stop::Unreadable(error)) => {
                tracing::error!(log = %log.name(), %error, "the log cannot be compacted");
                tracked.uncleanable = Some(log.config());
                tracked.look_ms = None;
            }
            // Its directory is offline, and said why.
            Err(Stop::Failed(_)) => tracked.look_ms = None,
        }
    }

    fn report(&self, shared: &Compaction) {
        let tracked = || self.tracked.values();
        let mut state = shared.state.lock();
        *state = State {
            dirtiest_ppm: tracked().map(|tracked| tracked.dirty_ppm).max().unwrap_or(0),
            oldest_dirty_ms: tracked().filter_map(|tracked| tracked.oldest_dirty_ms).min(),
            uncleanable: tracked().filter(|tracked| tracked.uncleanable.is_some()).count() as u64,
            ..*state
        };
    }
}

impl Tracked {
    fn notice(&mut self, dirt: Option<&Dirt>) {
        self.dirty_ppm = dirt.map_or(0, Dirt::ratio_ppm);
        self.oldest_dirty_ms = dirt.and_then(|dirt| dirt.oldest_dirty_ms);
    }
}
