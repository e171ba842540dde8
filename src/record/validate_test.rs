//! Each rule for batches of clients has its own error code.

use std::io::Write;

use super::*;
use crate::protocol::ErrorCode;
use crate::record::encode::Encoder;
use crate::record::{BatchBuilder, HEADER_SIZE, decode, records, varint};

const NOW: i64 = 1_000_000;
const RULES: ProduceRules = ProduceRules {
    now_ms: NOW,
    size_max: 1000,
    record_size_max: 500,
    compacted: false,
    log_append_time: false,
    timestamp_before_max_ms: 500,
    timestamp_after_max_ms: 100,
    compression: None,
};

fn batch(compression: Compression, records: &[(i64, Option<&[u8]>)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression);
    builder.set_producer(1, 0, 0);
    for (timestamp_ms, key) in records {
        builder.push(*timestamp_ms, *key, Some(b"value"), &[]);
    }
    builder.build()
}

fn good() -> Vec<u8> {
    batch(Compression::None, &[(NOW, Some(b"k")), (NOW + 5, None)])
}

fn seal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Validates after `damage`, with a checksum that is right.
fn check(damage: impl FnOnce(&mut Vec<u8>), rules: ProduceRules) -> Result<Validated, ErrorCode> {
    let mut bytes = good();
    damage(&mut bytes);
    seal(&mut bytes);
    validate(&mut bytes, &rules).map_err(|refusal| refusal.code())
}

/// Offset deltas and values of what is to be appended.
fn appended(bytes: &[u8], validated: &Validated) -> Vec<(i64, Vec<u8>)> {
    let bytes = validated.rewritten.as_deref().unwrap_or(bytes);
    let (batch, rest) = Batch::split_first(bytes).unwrap();
    assert!(rest.is_empty());
    batch.check_crc().unwrap();
    assert_eq!(batch.header, validated.header);
    let records = records(&batch, 1 << 20).unwrap();
    records.iter().map(|r| r.unwrap()).map(|r| (r.offset, r.value.unwrap().to_vec())).collect()
}

#[test]
fn a_good_batch_passes_unchanged() {
    let mut bytes = good();
    let validated = validate(&mut bytes, &RULES).unwrap();
    let header = validated.header;
    assert_eq!((header.record_count, header.max_timestamp_ms), (2, NOW + 5));
    assert_eq!((bytes, validated.rewritten), (good(), None));
}

#[test]
fn each_rule_has_its_code() {
    use ErrorCode::{
        CorruptMessage, InvalidRecord, InvalidTimestamp, InvalidTxnState, MessageTooLarge,
        UnsupportedCompressionType,
    };
    type Damage = fn(&mut Vec<u8>);
    let cases: [(&str, Damage, ErrorCode); 19] = [
        ("magic", |b| b[16] = 1, InvalidRecord),
        ("base offset", |b| b[7] = 1, InvalidRecord),
        ("two batches", |b| b.extend_from_within(..), InvalidRecord),
        ("no such magic", |b| b[16] = 3, CorruptMessage),
        ("cut", |b| b.truncate(b.len() - 1), InvalidRecord),
        ("cut in its header", |b| b.truncate(40), InvalidRecord),
        ("longer than its length", |b| b[11] += 1, InvalidRecord),
        ("delete horizon", |b| b[22] |= 0x40, InvalidRecord),
        ("count", |b| b[60] = 1, InvalidRecord),
        ("count and delta", |b| (b[60], b[26]) = (3, 2), InvalidRecord),
        ("no records", |b| b[57..61].fill(0), InvalidRecord),
        ("control", |b| b[22] |= 0x20, InvalidRecord),
        ("transactional", |b| b[22] |= 0x10, InvalidTxnState),
        ("codec", |b| b[22] |= 5, UnsupportedCompressionType),
        ("timestamp type", |b| b[22] |= 8, InvalidTimestamp),
        ("no sequence", |b| b[53..57].fill(0xff), InvalidRecord),
        ("too old", |b| b[27..35].copy_from_slice(&(NOW - 501).to_be_bytes()), InvalidTimestamp),
        ("too new", |b| b[27..35].copy_from_slice(&(NOW + 96).to_be_bytes()), InvalidTimestamp),
        ("no attributes", |b| b[61] = 0, InvalidRecord),
    ];
    for (name, damage, code) in cases {
        assert_eq!(check(damage, RULES).map(|_| ()), Err(code), "{name}");
    }
    let small = ProduceRules { size_max: 10, ..RULES };
    assert_eq!(check(|_| (), small).map(|_| ()), Err(MessageTooLarge));
    let mut bytes = good();
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(validate(&mut bytes, &RULES).unwrap_err().code(), CorruptMessage);
}

#[test]
fn a_compacted_topic_needs_keys_and_a_bad_timestamp_wins() {
    let compacted = ProduceRules { compacted: true, ..RULES };
    for compression in Compression::ALL {
        let refusal = |records: &[(i64, Option<&[u8]>)]| {
            validate(&mut batch(compression, records), &compacted).unwrap_err()
        };
        let keyless = refusal(&[(NOW, Some(b"k")), (NOW, None)]);
        assert_eq!(keyless.code(), ErrorCode::InvalidRecord);
        let named = keyless.into_record_errors();
        assert_eq!(named.iter().map(|error| error.index).collect::<Vec<_>>(), [1]);
        let both = refusal(&[(NOW, None), (NOW, Some(b"k")), (NOW + 101, None)]);
        assert_eq!(both.code(), ErrorCode::InvalidTimestamp);
        let named = both.into_record_errors();
        assert_eq!(named.iter().map(|error| error.index).collect::<Vec<_>>(), [0, 2]);
        validate(&mut batch(compression, &[(NOW, Some(b""))]), &compacted).unwrap();
    }
}

#[test]
fn timestamps_are_corrected_or_set() {
    let mut bytes = good();
    bytes[35..43].copy_from_slice(&(NOW + 50).to_be_bytes());
    seal(&mut bytes);
    validate(&mut bytes, &RULES).unwrap();
    assert_eq!(bytes, good(), "the largest timestamp is that of the records");

    for compression in Compression::ALL {
        let append_time = ProduceRules { log_append_time: true, ..RULES };
        let mut bytes = batch(compression, &[(-7, None), (NOW * 2, None)]);
        let header = validate(&mut bytes, &append_time).unwrap().header;
        assert!(header.is_log_append_time());
        assert_eq!(header.max_timestamp_ms, NOW);
        Batch::split_first(&bytes).unwrap().0.check_crc().unwrap();
    }
    validate(&mut batch(Compression::None, &[(-1, None)]), &RULES).expect("-1 means no timestamp");
}

/// A record that no reader can take apart would stop every reader at its offset.
#[test]
fn records_are_taken_apart_to_their_last_header() {
    let with_count = |count: u8| move |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() = count;
    assert!(check(with_count(0), RULES).is_ok());
    // -1, 1 and 63 as varints, in a record that has no headers.
    for count in [1, 2, 126] {
        assert_eq!(check(with_count(count), RULES).err(), Some(ErrorCode::InvalidRecord));
    }
}

#[test]
fn a_compressed_batch_is_opened() {
    for compression in Compression::ALL.into_iter().skip(1) {
        let whole = batch(compression, &[(NOW, Some(&b"k"[..])); 3]);
        let refused = |damage: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = whole.clone();
            damage(&mut bytes);
            seal(&mut bytes);
            validate(&mut bytes, &RULES).map(|_| ()).map_err(|refusal| refusal.code())
        };
        assert_eq!(refused(&|_| ()), Ok(()));
        let garbage = |bytes: &mut Vec<u8>| bytes[HEADER_SIZE..].fill(0x5a);
        assert_eq!(refused(&garbage), Err(ErrorCode::InvalidRecord), "{compression:?}");
        let fewer = |bytes: &mut Vec<u8>| (bytes[60], bytes[26]) = (2, 1);
        assert_eq!(refused(&fewer), Err(ErrorCode::InvalidRecord), "{compression:?}");
        let more = |bytes: &mut Vec<u8>| (bytes[60], bytes[26]) = (4, 3);
        assert_eq!(refused(&more), Err(ErrorCode::InvalidRecord), "{compression:?}");
        let late = |bytes: &mut Vec<u8>| bytes[27..35].copy_from_slice(&(NOW + 101).to_be_bytes());
        assert_eq!(refused(&late), Err(ErrorCode::InvalidTimestamp), "{compression:?}");
        // What the header says of the largest timestamp is corrected.
        let mut bytes = whole.clone();
        bytes[35..43].copy_from_slice(&(NOW + 7).to_be_bytes());
        seal(&mut bytes);
        assert_eq!(validate(&mut bytes, &RULES).unwrap().header.max_timestamp_ms, NOW);
        assert_eq!(bytes, whole);
    }
}

#[test]
fn a_record_may_be_larger_than_the_window_but_not_than_its_limit() {
    for compression in Compression::ALL {
        let mut builder = BatchBuilder::new(compression);
        for size in [10, 200_000, 0, 70_000] {
            let value: Vec<u8> = (0..size).map(|n: u32| n.to_le_bytes()[n as usize % 2]).collect();
            builder.push(NOW, Some(&value), Some(&value), &[("h", Some(&value))]);
        }
        let mut bytes = builder.build();
        let rules = ProduceRules { size_max: 10 << 20, record_size_max: 10 << 20, ..RULES };
        assert!(validate(&mut bytes, &rules).is_ok(), "{compression:?}");
        let small = ProduceRules { record_size_max: 300_000, ..rules };
        let result = validate(&mut bytes, &small).map_err(Refusal::into_record_errors);
        match compression {
            // As in Kafka, a limit of what is decompressed.
            Compression::None => assert!(result.is_ok()),
            _ => assert_eq!(result.unwrap_err()[0].index, 1),
        }
    }
}

#[test]
fn other_codecs_are_stored_as_the_topic_wants() {
    for from in Compression::ALL {
        for to in Compression::ALL {
            let mut bytes = batch(from, &[(NOW, Some(b"k")), (NOW + 3, None), (NOW + 1, None)]);
            let sent = bytes.clone();
            let rules = ProduceRules { compression: Some((to, to.default_level())), ..RULES };
            let validated = validate(&mut bytes, &rules).unwrap();
            assert_eq!(validated.header.codec(), to as u8);
            assert_eq!(validated.rewritten.is_some(), from != to);
            assert_eq!(bytes, sent, "what came is not touched");
            let values = appended(&bytes, &validated);
            assert_eq!(values, [0, 1, 2].map(|offset| (offset, b"value".to_vec())));
            // All that makes a retry recognizable, and the times.
            let (sent, kept) = (Batch::split_first(&sent).unwrap().0.header, validated.header);
            assert_eq!((kept.producer_id, kept.last_sequence()), (1, sent.last_sequence()));
            assert_eq!(kept.base_timestamp_ms, sent.base_timestamp_ms);
            assert_eq!(kept.max_timestamp_ms, sent.max_timestamp_ms);
        }
    }
    let random: Vec<u8> =
        (0..900_u32).map(|n| (n * n).to_le_bytes()[1] ^ n.to_le_bytes()[0]).collect();
    let mut builder = BatchBuilder::new(Compression::Gzip);
    builder.push(NOW, None, Some(&[7; 950]), &[]);
    builder.push(NOW, None, Some(&random), &[]);
    let uncompressed = ProduceRules {
        compression: Some((Compression::None, 0)),
        record_size_max: 1000,
        size_max: 1500,
        ..RULES
    };
    let refusal = validate(&mut builder.build(), &uncompressed).unwrap_err();
    assert_eq!(refusal.code(), ErrorCode::MessageTooLarge, "when it is written anew");
}

/// librdkafka writes them; xerial's framing around them would be no gain.
#[test]
fn a_raw_snappy_block_stays_as_it_came() {
    let mut plain = good();
    let raw = snap::raw::Encoder::new().compress_vec(&plain[HEADER_SIZE..]).unwrap();
    plain.truncate(HEADER_SIZE);
    plain.extend_from_slice(&raw);
    let mut header = BatchHeader { size: plain.len(), ..BatchHeader::parse(&good()).unwrap() };
    header.set_compression(Compression::Snappy);
    header.write(&mut plain);
    let sent = plain.clone();
    let rules = ProduceRules { compression: Some((Compression::Snappy, 0)), ..RULES };
    let validated = validate(&mut plain, &rules).unwrap();
    assert_eq!((plain, validated.rewritten), (sent, None));
}

#[test]
fn gaps_between_offsets_are_closed() {
    for compression in Compression::ALL {
        // Offset deltas 5, 70 and 3.
        let mut body = Vec::new();
        for (delta, value) in [(5, b'a'), (70, b'b'), (3, b'c')] {
            let mut record = vec![0, 0];
            varint::write_int(&mut record, delta);
            record.extend_from_slice(&[1, 2, value, 0]);
            varint::write_int(&mut body, i32::try_from(record.len()).unwrap());
            body.extend_from_slice(&record);
        }
        let mut bytes = vec![0; HEADER_SIZE];
        compression.compress(&body, &mut bytes);
        let mut header = BatchHeader::parse(&good()).unwrap();
        (header.record_count, header.last_offset_delta) = (3, 2);
        header.set_compression(compression);
        header.write(&mut bytes);
        let validated = validate(&mut bytes, &RULES).unwrap();
        let expected = [(0, b"a".to_vec()), (1, b"b".to_vec()), (2, b"c".to_vec())];
        assert_eq!(appended(&bytes, &validated), expected, "{compression:?}");
        assert_eq!(validated.header.codec(), compression as u8);
    }
}

/// What becomes gigabytes takes a window of memory, and the time of the first 128 MiB. In a process of its own, whose memory
/// is nobody else's.
#[test]
fn bombs_take_little_memory() {
    const ALONE: &str = "KONTIKI_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "record::validate::tests::bombs_take_little_memory"])
            .env(ALONE, "1")
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.unwrap().success());
        return;
    }
    const RSS_MAX_KB: usize = 200 << 10;
    let chunk = vec![0; 1 << 20];
    for compression in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        for record_size in [1 << 20, i32::MAX] {
            let mut bomb = Vec::new();
            varint::write_int(&mut bomb, record_size);
            bomb.extend_from_slice(&[0, 0, 0, 1]);
            varint::write_int(&mut bomb, record_size - 12);
            let level = compression.default_level();
            let mut encoder = Encoder::new(compression, level, vec![0; HEADER_SIZE]).unwrap();
            encoder.write_all(&bomb).unwrap();
            (0..256).for_each(|_| encoder.write_all(&chunk).unwrap());
            let mut bytes = encoder.finish().unwrap();
            let mut header = BatchHeader::parse(&good()).unwrap();
            (header.record_count, header.last_offset_delta) = (2, 1);
            header.set_compression(compression);
            header.write(&mut bytes);
            let rules = ProduceRules { size_max: u32::MAX, record_size_max: u32::MAX, ..RULES };
            validate(&mut bytes, &rules).unwrap_err();
            decode::decompress(compression as u8, &bytes[HEADER_SIZE..], 64 << 20).unwrap_err();
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    let peak_kb: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kb < RSS_MAX_KB, "{peak_kb} kB");
}
