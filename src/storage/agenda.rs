//! What is due when, one entry per key: a thread sleeps until the first one, and an entry costs nothing until then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Agenda<K> {
    due: BTreeMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Agenda<K> {
    /// `key` is due then, and not earlier or later.
    pub(super) fn set(&mut self, key: &K, due: Instant) {
        self.remove(key);
        self.due.insert(key.clone(), due);
        self.order.insert((due, key.clone()));
    }

    /// `key` is due then, unless it is due earlier.
    pub(super) fn bring_forward(&mut self, key: &K, due: Instant) {
        if self.due.get(key).is_none_or(|known| *known > due) {
            self.set(key, due);
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some((key, due)) = self.due.remove_entry(key) {
            self.order.remove(&(due, key));
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }

    /// The first key that is due at `now`; it has no entry any more.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<K> {
        self.next().filter(|due| *due <= now)?;
        let (_, key) = self.order.pop_first()?;
        self.due.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::time::now;

    #[test]
    fn each_key_has_one_entry() {
        let start = now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut agenda = Agenda::default();
        agenda.set(&"a", at(5));
        agenda.bring_forward(&"a", at(9));
        agenda.bring_forward(&"b", at(7));
        assert_eq!(agenda.next(), Some(at(5)));
        agenda.bring_forward(&"b", at(3));
        agenda.set(&"a", at(8));
        agenda.set(&"c", at(1));
        agenda.remove(&"c");
        assert_eq!(agenda.take_due(at(2)), None);
        assert_eq!((agenda.take_due(at(8)), agenda.take_due(at(8))), (Some("b"), Some("a")));
        assert_eq!((agenda.take_due(at(99)), agenda.next()), (None, None));
    }
}
