//! What becomes of the batches of one partition after some of them failed. Pure.
//!
//! The broker appends a batch of a producer id only when its sequence follows the last one, and answers a sequence that
//! it has seen with the offset it has. So a batch may be sent again, under the same number, as often as needed. Numbers
//! can be given anew, under a new producer id, only to batches that are certainly not in the log.

use crate::client::Error;
use crate::protocol::native::Produced;

/// How an attempt to produce one batch ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Acked(Produced),
    /// It is not in the log, and never will be.
    Rejected(Error),
    /// It may be in the log.
    Unknown(String),
    /// It is not in the log, because what comes before it is not, or because the broker has forgotten the producer.
    OutOfOrder(Error),
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    Acked(Produced),
    Failed(Error),
    Resend,
    /// No time is left; the sentence is the last attempt's.
    Expired(String),
}

/// Decides about the batches of one partition, in the order in which they were sent. `expired` tells of each whether its
/// time is up. `gap`: a batch before these, under the same producer id, may be missing in the log.
///
/// With `renumber`, all that are to be sent again get new numbers under a new producer id.
pub(super) fn settle(outcomes: Vec<(Outcome, bool)>, gap: &mut bool) -> Settled {
    let mut settled = Settled { verdicts: Vec::with_capacity(outcomes.len()), renumber: false };
    let mut resends = false;
    for (outcome, expired) in outcomes {
        let verdict = match outcome {
            Outcome::Acked(produced) => Verdict::Acked(produced),
            Outcome::Rejected(error) => Verdict::Failed(error),
            Outcome::Unknown(cause) if expired => Verdict::Expired(cause),
            Outcome::OutOfOrder(error) if expired => Verdict::Expired(error.to_string()),
            Outcome::Unknown(_) => Verdict::Resend,
            // The one before it comes first.
            Outcome::OutOfOrder(_) if resends => Verdict::Resend,
            Outcome::OutOfOrder(_) if *gap => {
                settled.renumber = true;
                Verdict::Resend
            }
            // Nothing of ours is missing: the broker has lost acknowledged records. That must not pass silently.
            Outcome::OutOfOrder(error) => Verdict::Failed(error),
        };
        *gap |= matches!(verdict, Verdict::Failed(_) | Verdict::Expired(_));
        resends |= verdict == Verdict::Resend;
        settled.verdicts.push(verdict);
    }
    if settled.renumber {
        *gap = false;
    }
    settled
}

/// See [`settle`].
#[derive(Debug, PartialEq)]
pub(super) struct Settled {
    pub(super) verdicts: Vec<Verdict>,
    pub(super) renumber: bool,
}

/// The sequence after `records` more; it wraps as Kafka's does.
pub(super) fn sequence_after(sequence: i32, records: usize) -> i32 {
    let after = (i64::from(sequence) + i64::try_from(records).expect("a batch fits in memory"))
        & i64::from(i32::MAX);
    i32::try_from(after).expect("masked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Refusal;
    use crate::protocol::ErrorCode;

    const ACK: Produced = Produced { base_offset: 7, log_append_time_ms: -1, log_start_offset: 0 };

    fn error(code: ErrorCode) -> Error {
        Error::Refused(Refusal::new(code, ""))
    }

    /// One letter a batch: Acked, Rejected, Unknown, Order; small: and its time is up.
    fn check(outcomes: &str, gap_before: bool, verdicts: &str, renumber: bool, gap_after: bool) {
        let outcomes = outcomes.chars().map(|letter| {
            let outcome = match letter.to_ascii_uppercase() {
                'A' => Outcome::Acked(ACK),
                'R' => Outcome::Rejected(error(ErrorCode::MessageTooLarge)),
                'U' => Outcome::Unknown("lost".to_owned()),
                _ => Outcome::OutOfOrder(error(ErrorCode::OutOfOrderSequenceNumber)),
            };
            (outcome, letter.is_ascii_lowercase())
        });
        let mut gap = gap_before;
        let settled = settle(outcomes.collect(), &mut gap);
        let letters: String = (settled.verdicts.iter())
            .map(|verdict| match verdict {
                Verdict::Acked(_) => 'A',
                Verdict::Failed(_) => 'F',
                Verdict::Resend => 'S',
                Verdict::Expired(_) => 'X',
            })
            .collect();
        assert_eq!((letters.as_str(), settled.renumber, gap), (verdicts, renumber, gap_after));
    }

    #[test]
    fn what_may_be_in_the_log_is_sent_again_under_its_number() {
        check("U", false, "S", false, false);
        check("UOO", false, "SSS", false, false);
        check("AUA", false, "ASA", false, false);
        check("UUU", false, "SSS", false, false);
    }

    #[test]
    fn what_follows_a_rejected_batch_gets_new_numbers() {
        check("ROO", false, "FSS", true, false);
        check("O", true, "S", true, false);
        // Its own append shows that the log took it in spite of the gap.
        check("RA", false, "FA", false, true);
        // It may be in the log under its number; the one behind it waits for that.
        check("RUO", false, "FSS", false, true);
    }

    #[test]
    fn a_batch_out_of_time_leaves_a_gap() {
        check("uO", false, "XS", true, false);
        check("ao", false, "AX", false, true);
    }

    #[test]
    fn a_broker_that_lost_acknowledged_records_is_reported() {
        check("O", false, "F", false, true);
        check("OO", false, "FS", true, false);
    }

    #[test]
    fn sequences_wrap() {
        assert_eq!(sequence_after(5, 3), 8);
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(i32::MAX - 1, 3), 1);
    }
}
