//! Every message against the `kafka-protocol` crate as an oracle.
//!
//! What we write, the oracle must read to the end, find the same values under the same names, and write again byte for
//! byte; and so must we.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as oracle;
use kafka_protocol::protocol::{Decodable, Encodable, Message};
use proptest::prelude::*;

use super::sample::{Sample, Source};
use super::*;

/// Hands a table of our types, their oracles and the lowest version in which every nullable field may be null to
/// `$check`.
macro_rules! for_each_message {
    ($check:ident) => {
        $check! { Produce: ProduceRequest 3, ProduceResponse 3 }
        $check! { Fetch: FetchRequest 4, FetchResponse 4 }
        $check! { ListOffsets: ListOffsetsRequest 1, ListOffsetsResponse 1 }
        $check! { Metadata: MetadataRequest 12, MetadataResponse 12 }
        $check! { FindCoordinator: FindCoordinatorRequest 0, FindCoordinatorResponse 0 }
        $check! { ApiVersions: ApiVersionsRequest 0, ApiVersionsResponse 0 }
        $check! { CreateTopics: CreateTopicsRequest 2, CreateTopicsResponse 2 }
        $check! { DeleteTopics: DeleteTopicsRequest 1, DeleteTopicsResponse 6 }
        $check! { DeleteRecords: DeleteRecordsRequest 0, DeleteRecordsResponse 0 }
        $check! { InitProducerId: InitProducerIdRequest 0, InitProducerIdResponse 0 }
        $check! { OffsetForLeaderEpoch: OffsetForLeaderEpochRequest 2, OffsetForLeaderEpochResponse 2 }
        $check! { DescribeLogDirs: DescribeLogDirsRequest 1, DescribeLogDirsResponse 1 }
        $check! { DescribeConfigs: DescribeConfigsRequest 1, DescribeConfigsResponse 1 }
        $check! { AlterConfigs: AlterConfigsRequest 0, AlterConfigsResponse 0 }
        $check! { CreatePartitions: CreatePartitionsRequest 0, CreatePartitionsResponse 0 }
        $check! { ElectLeaders: ElectLeadersRequest 0, ElectLeadersResponse 0 }
        $check! { IncrementalAlterConfigs: IncrementalAlterConfigsRequest 0, IncrementalAlterConfigsResponse 0 }
        $check! { AlterPartitionReassignments: AlterPartitionReassignmentsRequest 0, AlterPartitionReassignmentsResponse 0 }
        $check! { ListPartitionReassignments: ListPartitionReassignmentsRequest 0, ListPartitionReassignmentsResponse 0 }
        $check! { DescribeCluster: DescribeClusterRequest 0, DescribeClusterResponse 0 }
        $check! { DescribeTopicPartitions: DescribeTopicPartitionsRequest 0, DescribeTopicPartitionsResponse 0 }
    };
}

fn encode<T: Wire>(api: Api, version: i16, message: &T) -> Bytes {
    let mut writer = Writer::new(version, api.is_flexible(version));
    message.write(&mut writer);
    let encoded = writer.finish().expect("samples fit");
    assert!(encoded.gaps.is_empty());
    encoded.bytes.into()
}

fn decode<T: Wire>(api: Api, version: i16, bytes: &[u8]) -> Result<T, Error> {
    let mut reader = Reader::new(BytesMut::from(bytes));
    reader.set_version(version, api.is_flexible(version));
    let message = T::read(&mut reader)?;
    reader.finish()?;
    Ok(message)
}

/// A debug text without what differs for no reason: names of types, wrappers of one value, forms of ids.
fn normalise(debug: &str) -> String {
    let mut text = debug.replace(", unknown_tagged_fields: {}", "").replace("Null", "None");
    text = text.replace("None(None)", "None").replace("None(Some(", "Some((");
    let mut out = String::new();
    let mut word = String::new();
    let mut in_string = false;
    for c in text.chars() {
        in_string ^= c == '"';
        if !in_string && (c.is_alphanumeric() || c == '_' || c == '-') {
            word.push(c);
            continue;
        }
        let is_uuid = out.ends_with("_id:") && matches!(word.len(), 22 | 36);
        let is_wrapper = word.starts_with(|c: char| c.is_uppercase()) && word != "None";
        if is_uuid {
            out.push_str("ID");
        } else if !is_wrapper {
            out.push_str(&word);
        }
        word.clear();
        if !matches!(c, '(' | ')' | ' ') || in_string {
            out.push(c);
        }
    }
    // Of a field that the version does not have, the oracle makes an empty string where we make none.
    (out + &word).replace("\"\"", "None").replace("configs:[]", "configs:None")
}

fn check<T, O>(api: Api, version: i16, nulls: bool)
where
    T: Wire + Sample + PartialEq + std::fmt::Debug,
    O: Encodable + Decodable + std::fmt::Debug,
{
    let what = format!("{} version {version}, nulls: {nulls}", std::any::type_name::<T>());
    let ours = encode(api, version, &T::sample(&mut Source { nulls, ..Source::default() }));
    let mut left = ours.clone();
    let theirs = O::decode(&mut left, version).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(left.is_empty(), "{what}: {} bytes left over", left.len());
    let mut again = BytesMut::new();
    theirs.encode(&mut again, version).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(again, ours, "{what}");
    let read: T = decode(api, version, &ours).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(encode(api, version, &read), ours, "{what}");
    assert_eq!(normalise(&format!("{read:?}")), normalise(&format!("{theirs:?}")), "{what}");
}

#[test]
fn every_message_reads_and_writes_as_the_oracle_does() {
    let mut checked = 0;
    macro_rules! check_both {
        ($api:ident: $request:ident $request_nulls:literal, $response:ident $response_nulls:literal) => {
            check_both! { @one $api $request $request_nulls }
            check_both! { @one $api $response $response_nulls }
        };
        (@one $api:ident $message:ident $nulls_from:literal) => {
            let theirs = <oracle::$message as Message>::VERSIONS;
            for version in Api::$api.served().filter(|v| (theirs.min..=theirs.max).contains(v)) {
                check::<$message, oracle::$message>(Api::$api, version, false);
                if version >= $nulls_from {
                    check::<$message, oracle::$message>(Api::$api, version, true);
                }
                checked += 1;
            }
        };
    }
    for_each_message!(check_both);
    // All versions in the table, both ways, but one: the oracle does not know ListOffsets 11.
    let served: usize = Api::ALL.iter().map(|api| api.served().count()).sum();
    assert_eq!(checked, 2 * (served - 1));
}

#[test]
fn headers_are_as_the_oracle_writes_them() {
    for api in Api::ALL {
        let key = oracle::ApiKey::try_from(api.key()).expect("a key of Kafka's");
        for version in api.served() {
            let header = oracle::RequestHeader::default()
                .with_request_api_key(api.key())
                .with_request_api_version(version)
                .with_correlation_id(77)
                .with_client_id(Some("me".to_owned().into()));
            let mut bytes = BytesMut::new();
            header.encode(&mut bytes, key.request_header_version(version)).expect("valid");
            bytes.extend_from_slice(b"body");
            let mut reader = Reader::new(bytes);
            let ours = RequestHeader::read(&mut reader).expect("valid");
            assert_eq!(
                (ours.api_key, ours.api_version, ours.correlation_id, ours.client_id.as_deref()),
                (api.key(), version, 77, Some("me"))
            );
            assert_eq!((reader.remaining(), reader.version), (4, version));
            let response_header = i16::from(api.has_flexible_response_header(version));
            assert_eq!(response_header, key.response_header_version(version), "{api:?} {version}");
        }
    }
}

#[test]
fn whole_frames_read_back() {
    let request = MetadataRequest::sample(&mut Source::default());
    let frame = encode_request(9, 5, Some("cli".into()), &request).expect("fits").bytes;
    let mut reader = Reader::new(BytesMut::from(&frame[..]));
    let header = RequestHeader::read(&mut reader).expect("valid");
    assert_eq!((header.api_key, header.correlation_id), (3, 5));
    let read: MetadataRequest = decode_body(reader).expect("valid");
    assert_eq!(read.topics.map(|t| t.len()), request.topics.map(|t| t.len()));

    let response = MetadataResponse::sample(&mut Source::default());
    let frame = encode_response::<MetadataRequest>(13, 5, &response).expect("fits").bytes;
    let (correlation_id, read) =
        decode_response::<MetadataRequest>(13, BytesMut::from(&frame[..])).expect("valid");
    assert_eq!((correlation_id, read.error_code), (5, response.error_code));
}

#[test]
fn unknown_tags_are_skipped() {
    let known = encode(Api::Metadata, 12, &MetadataRequest::default());
    let (body, no_tags) = known.split_at(known.len() - 1);
    assert_eq!(no_tags, [0]);
    let mut tagged = body.to_vec();
    // Two tags: 5 with three bytes, 300 with none.
    tagged.extend_from_slice(&[2, 5, 3, 1, 2, 3, 0xac, 0x02, 0]);
    assert_eq!(decode(Api::Metadata, 12, &tagged), Ok(MetadataRequest::default()));
}

#[test]
fn record_sets_are_split_off_the_frame_and_can_be_left_out() {
    let partition =
        ProducePartition { index: 1, records: Records::Bytes(BytesMut::from(&b"a batch"[..])) };
    let bytes = BytesMut::from(&encode(Api::Produce, 9, &partition)[..]);
    let range = bytes.as_ptr_range();
    let mut reader = Reader::new(bytes);
    reader.set_version(9, true);
    let Records::Bytes(records) = ProducePartition::read(&mut reader).expect("valid").records
    else {
        panic!("no records");
    };
    assert!(range.contains(&records.as_ptr()), "copied");

    let left_out = ProducePartition { index: 1, records: Records::Gap(7) };
    let mut writer = Writer::new(9, true);
    left_out.write(&mut writer);
    let mut encoded = writer.finish().expect("fits");
    let [Gap { position, size: 7 }] = encoded.gaps[..] else { panic!("{:?}", encoded.gaps) };
    let tail = encoded.bytes.split_off(position);
    encoded.bytes.extend_from_slice(b"a batch");
    encoded.bytes.extend_from_slice(&tail);
    assert_eq!(encoded.bytes, encode(Api::Produce, 9, &partition));
}

#[test]
fn forged_lengths_are_refused_at_once() {
    // An array of 2^31 - 1 topics, a string of 32767 bytes, a record set of 2 GiB.
    let forged: &[(Api, i16, &[u8])] = &[
        (Api::Metadata, 1, &[0x7f, 0xff, 0xff, 0xff, 0, 0]),
        (Api::Metadata, 1, &[0, 0, 0, 1, 0x7f, 0xff, 0, 0]),
        (Api::Metadata, 9, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]),
    ];
    for (api, version, bytes) in forged {
        let read = decode::<MetadataRequest>(*api, *version, bytes);
        assert!(matches!(read, Err(Error::Truncated { .. })), "{read:?}");
    }
    let negative = decode::<MetadataRequest>(Api::Metadata, 1, &[0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(negative, Err(Error::Length(-2)));
    let endless = decode::<MetadataRequest>(Api::Metadata, 9, &[0xff, 0xff, 0xff, 0xff, 0x7f, 0]);
    assert_eq!(endless, Err(Error::Varint));
    // Elements of one byte each that would take a hundred times that in memory.
    let count = i32::try_from(2 * ELEMENTS_MAX).expect("a bound");
    let many = [&count.to_be_bytes()[..], &vec![0; 4 * ELEMENTS_MAX]].concat();
    assert_eq!(decode::<MetadataRequest>(Api::Metadata, 1, &many), Err(Error::TooManyElements));
}

/// Reads the bytes as every request and response in `version`; the answers do not matter, only that there is one.
fn read_as_everything(version: i16, bytes: &[u8]) {
    macro_rules! read_both {
        ($api:ident: $request:ident $request_nulls:literal, $response:ident $response_nulls:literal) => {
            if Api::$api.served().contains(&version) {
                let _ = decode::<$request>(Api::$api, version, bytes);
                let _ = decode::<$response>(Api::$api, version, bytes);
            }
        };
    }
    for_each_message!(read_both);
    let _ = RequestHeader::read(&mut Reader::new(BytesMut::from(bytes)));
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(
        version in 0_i16..=18,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        read_as_everything(version, &bytes);
    }

    #[test]
    fn no_damage_makes_a_reader_panic(
        version in 4_i16..=18,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        macro_rules! damage_both {
            ($api:ident: $request:ident $request_nulls:literal, $response:ident $response_nulls:literal) => {
                damage_both! { @one $api $request }
                damage_both! { @one $api $response }
            };
            (@one $api:ident $message:ident) => {
                if Api::$api.served().contains(&version) {
                    let message = $message::sample(&mut Source::default());
                    let mut bytes = encode(Api::$api, version, &message).to_vec();
                    for (index, byte) in &damage {
                        *index.get_mut(&mut bytes) = *byte;
                    }
                    let _ = decode::<$message>(Api::$api, version, &bytes);
                    let _ = decode::<$message>(Api::$api, version, &bytes[..cut.index(bytes.len())]);
                }
            };
        }
        for_each_message!(damage_both);
    }
}
