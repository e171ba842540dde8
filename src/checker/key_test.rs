//! One small history per anomaly, and one without any.

use super::{AnomalyKind, Checker, Event, Report, Verdict};

/// Runs a history in shorthand, one process a producer (1, 2) or a consumer (9): `send 1 7 ok 3` (process, value, outcome,
/// offset), `poll 9 3=7 4=8` (process, records), `seek 9 0`, `end 5`.
fn judge(lines: &[&str]) -> Report {
    let mut checker = Checker::default();
    let begin =
        r#"{"event":"begin","version":1,"target":"t","workload":"queue","seed":1,"started_ms":0}"#;
    let mut add = |json: &str| checker.add(serde_json::from_str::<Event>(json).expect(json));
    add(begin);
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let json = match words[..] {
            ["send", process, value, outcome, ref offset @ ..] => format!(
                r#"{{"event":"send","process":{process},"key":0,"value":{value},"begin_us":1,"end_us":2,"outcome":"{outcome}","offset":{}}}"#,
                offset.first().unwrap_or(&"null")
            ),
            ["seek", process, offset] => {
                format!(r#"{{"event":"seek","process":{process},"key":0,"offset":{offset}}}"#)
            }
            ["poll", process, ref records @ ..] => {
                let pairs = records.iter().map(|record| format!("[{}]", record.replace('=', ",")));
                let pairs: Vec<String> = pairs.collect();
                let last = records.last().and_then(|record| record.split('=').next());
                let next = last.map_or(0, |offset| offset.parse::<i64>().unwrap() + 1);
                format!(
                    r#"{{"event":"poll","process":{process},"key":0,"begin_us":1,"end_us":2,"records":[{}],"next_offset":{next}}}"#,
                    pairs.join(",")
                )
            }
            ["end", offset] => {
                format!(r#"{{"event":"end","keys":[{{"key":0,"offset":{offset}}}]}}"#)
            }
            _ => panic!("{line}"),
        };
        add(&json);
    }
    checker.finish().unwrap()
}

fn kinds(report: &Report) -> Vec<AnomalyKind> {
    report.anomalies.iter().map(|anomaly| anomaly.kind).collect()
}

#[track_caller]
fn violates(lines: &[&str], expected: &[AnomalyKind]) {
    let report = judge(lines);
    assert_eq!(kinds(&report), expected, "{:?}", report.anomalies);
    assert_eq!(report.verdict, Verdict::Violated);
}

#[test]
fn what_is_acknowledged_and_read_once_in_order_is_clean() {
    // Offset 2 is a marker; the unknown one was written; the failed one was not.
    let report = judge(&[
        "send 1 1 ok 0",
        "send 1 2 unknown",
        "send 1 3 ok 3",
        "send 1 4 failed",
        "poll 9 0=1 1=2",
        "poll 9 3=3",
        "seek 9 1",
        "poll 9 1=2 3=3",
        "end 4",
    ]);
    assert_eq!((report.verdict, kinds(&report)), (Verdict::Clean, vec![]));
    let counts = report.counts;
    assert_eq!((counts.acknowledged, counts.unknown, counts.failed, counts.polled), (2, 1, 1, 5));
}

#[test]
fn a_record_that_readers_passed_without_it_is_lost() {
    violates(
        &["send 1 1 ok 0", "send 1 2 ok 1", "send 1 3 ok 2", "poll 9 0=1 2=3", "end 3"],
        &[AnomalyKind::Lost, AnomalyKind::PollSkip],
    );
}

#[test]
fn a_record_beyond_the_end_is_lost_once_everything_was_read() {
    let lines = ["send 1 1 ok 0", "send 1 2 ok 1", "poll 9 0=1"];
    let unfinished = judge(&lines);
    assert_eq!(unfinished.verdict, Verdict::Unknown);
    assert_eq!(kinds(&unfinished), [AnomalyKind::Unseen]);
    violates(&[&lines[..], &["end 1"]].concat(), &[AnomalyKind::Unseen]);
}

#[test]
fn a_run_that_was_not_read_to_its_end_proves_nothing() {
    assert_eq!(judge(&["send 1 1 ok 0", "poll 9 0=1", "end 2"]).verdict, Verdict::Unknown);
    assert_eq!(judge(&["end 0"]).verdict, Verdict::Unknown);
}

#[test]
fn one_value_at_two_offsets_is_a_duplicate() {
    violates(&["send 1 1 ok 0", "poll 9 0=1 1=1", "end 2"], &[AnomalyKind::Duplicate]);
}

#[test]
fn two_values_at_one_offset_are_inconsistent() {
    violates(
        &["send 1 1 ok 0", "send 2 2 ok 0", "poll 9 0=2", "end 1"],
        &[AnomalyKind::Lost, AnomalyKind::InconsistentOffset],
    );
    // Two replicas, two truths.
    violates(
        &["send 1 1 ok 0", "send 2 2 unknown", "poll 8 0=1", "poll 9 0=2", "end 1"],
        &[AnomalyKind::InconsistentOffset],
    );
}

#[test]
fn later_sends_lie_after_earlier_ones() {
    violates(
        &["send 1 1 ok 1", "send 1 2 ok 0", "poll 9 0=2 1=1", "end 2"],
        &[AnomalyKind::NonmonotonicSend],
    );
    // The offset of the unknown one is known from the poll. Another process may do as it likes.
    violates(
        &["send 1 1 unknown", "send 1 2 ok 0", "send 2 3 ok 1", "poll 9 0=2 1=3 2=1", "end 3"],
        &[AnomalyKind::NonmonotonicSend],
    );
}

#[test]
fn readers_go_on_where_they_were() {
    let sends = ["send 1 1 ok 0", "send 1 2 ok 1", "send 1 3 ok 2"];
    let with = |polls: &[&'static str]| [&sends[..], polls, &["end 3"]].concat();
    violates(&with(&["poll 9 0=1 1=2", "poll 9 1=2 2=3"]), &[AnomalyKind::NonmonotonicPoll]);
    violates(&with(&["poll 8 0=1 1=2 2=3", "poll 9 0=1 2=3"]), &[AnomalyKind::PollSkip]);
    violates(&with(&["seek 9 0", "poll 9 1=2 2=3", "poll 8 0=1"]), &[AnomalyKind::PollSkip]);
}

#[test]
fn what_was_not_written_is_not_read() {
    violates(&["send 1 1 ok 0", "poll 9 0=1 1=2", "end 2"], &[AnomalyKind::Phantom]);
    violates(
        &["send 1 1 ok 0", "send 1 2 failed", "poll 9 0=1 1=2", "end 2"],
        &[AnomalyKind::AbortedRead],
    );
    violates(&["send 1 1 ok 0", "poll 9 0=1 1=null", "end 2"], &[AnomalyKind::Unreadable]);
}
