//! Invariant 8: answers agree with one order of the requests that respects real time. Producer-id blocks show it: who
//! asked after another was answered gets a later block, and nothing that was answered is undone.

use super::History;

pub(super) fn check(history: &History) {
    for a in &history.blocks {
        for b in history.blocks.iter().filter(|b| a.answered < b.asked) {
            assert!(
                a.first < b.first,
                "INV-8: {a:?} was answered before {b:?} was asked, and got a later block"
            );
        }
        let last = history.images().last().expect("at least the last image");
        assert!(a.first + a.count <= last.next_producer_id, "INV-8: {a:?} was undone");
    }
}
