//! The client against two brokers that misbehave on purpose, with seeds.
//!
//! The brokers share one partition log, keep Kafka's rules for idempotent producers, and do to each produce request one of
//! the things that brokers and networks do: append and answer; append and die before the answer; die before the append;
//! refuse for a while; move the leadership to the other; fall silent until the other leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;
use crate::controller::Refusal;
use crate::net::{FrameWriter, Identity, Limits, accept_hello, split};
use crate::protocol::ErrorCode;
use crate::protocol::native::{
    BrokerView, FetchReply, FetchRequest, Fetched, Frame, InitProducerIdReply, Kind,
    ListOffsetsReply, ListOffsetsRequest, MetadataReply, PartitionError, PartitionView,
    ProduceReply, ProduceRequest, Produced, Purpose,
};
use crate::record::{BatchHeader, assign_offset};
use crate::types::{
    Endpoints, HostPort, LeaderEpoch, NodeId, Offset, PartitionEpoch, Uuid, random,
};

const TOPIC: &str = "t";

/// What both brokers see.
struct World {
    addresses: Vec<HostPort>,
    leader: i32,
    leader_epoch: i32,
    log: Vec<u8>,
    end_offset: Offset,
    /// By producer id: the last five (first sequence, last sequence, base offset).
    producers: BTreeMap<i64, Vec<(i32, i32, Offset)>>,
    next_producer_id: i64,
    random: u64,
    /// In a hundred produce requests, how many go wrong.
    faults: u64,
}

/// What becomes of a request.
enum Answer {
    Reply(Frame),
    /// The connection breaks.
    Break,
    Silence,
}

impl World {
    /// A splitmix64 step: the same faults for the same seed and the same requests.
    fn roll(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn refusal(&self, code: ErrorCode) -> PartitionError {
        let leader = Some((NodeId(self.leader), LeaderEpoch(self.leader_epoch)));
        PartitionError { code, message: "scripted".to_owned(), leader, record_errors: Vec::new() }
    }

    fn move_leader(&mut self) {
        self.leader = 3 - self.leader;
        self.leader_epoch += 1;
    }

    /// As replication.md 3.7 has it.
    fn append(&mut self, batch: &[u8]) -> Result<Produced, ErrorCode> {
        let header = BatchHeader::parse(batch).map_err(|_| ErrorCode::CorruptMessage)?;
        let produced =
            |base_offset| Ok(Produced { base_offset, log_append_time_ms: -1, log_start_offset: 0 });
        let sequences = (header.base_sequence, header.last_sequence());
        let seen = self.producers.entry(header.producer_id).or_default();
        if let Some(known) = seen.iter().find(|known| (known.0, known.1) == sequences) {
            return produced(known.2);
        }
        let expected = seen.last().map_or(sequences.0, |last| last.1 + 1);
        if sequences.0 != expected {
            return Err(ErrorCode::OutOfOrderSequenceNumber);
        }
        seen.push((sequences.0, sequences.1, self.end_offset));
        let excess = seen.len().saturating_sub(5);
        seen.drain(..excess);
        let mut batch = batch.to_vec();
        assign_offset(&mut batch, self.end_offset, LeaderEpoch(self.leader_epoch));
        self.log.extend_from_slice(&batch);
        let base_offset = self.end_offset;
        self.end_offset += i64::from(header.record_count);
        produced(base_offset)
    }

    fn produce(&mut self, me: i32, frame: &Frame) -> Answer {
        let request: ProduceRequest = frame.body().expect("from our client");
        assert_eq!(request.entries.len(), 1);
        if me != self.leader {
            return self.produced(frame, Err(self.refusal(ErrorCode::NotLeaderOrFollower)));
        }
        if is_poisoned(&frame.payload) {
            return self.produced(frame, Err(self.refusal(ErrorCode::InvalidRecord)));
        }
        let goes_wrong = self.roll(100) < self.faults;
        match if goes_wrong { self.roll(5) } else { 5 } {
            0 => return Answer::Break,
            1 => {
                let _ = self.append(&frame.payload);
                return Answer::Break;
            }
            2 => return self.produced(frame, Err(self.refusal(ErrorCode::NotEnoughReplicas))),
            3 => {
                let _ = self.append(&frame.payload);
                self.move_leader();
                return Answer::Silence;
            }
            4 => {
                self.move_leader();
                return self.produced(frame, Err(self.refusal(ErrorCode::NotLeaderOrFollower)));
            }
            _ => {}
        }
        let result = self.append(&frame.payload).map_err(|code| self.refusal(code));
        self.produced(frame, result)
    }

    fn produced(&self, frame: &Frame, result: Result<Produced, PartitionError>) -> Answer {
        reply(frame, &ProduceReply { results: vec![result] })
    }

    fn fetch(&mut self, me: i32, frame: &Frame) -> Answer {
        let request: FetchRequest = frame.body().expect("from our client");
        let offset = request.entries[0].fetch_offset;
        if me != self.leader || self.roll(100) < self.faults {
            self.move_leader();
            let refused = Err(self.refusal(ErrorCode::NotLeaderOrFollower));
            return reply(frame, &FetchReply { results: vec![refused] });
        }
        // One batch a fetch: the one that holds the offset.
        let found = crate::record::batches(&self.log)
            .map(|batch| batch.expect("ours"))
            .scan(0, |at, batch| {
                let from = *at;
                *at += batch.header.size;
                Some((batch.header.next_offset(), from..*at))
            })
            .find(|(next_offset, _)| *next_offset > offset);
        let payload = match found {
            Some((_, range)) => Bytes::copy_from_slice(&self.log[range]),
            None => return Answer::Silence,
        };
        let size = u32::try_from(payload.len()).expect("small");
        let fetched = Fetched { high_watermark: self.end_offset, log_start_offset: 0, size };
        let results = vec![Ok(fetched)];
        let body = &FetchReply { results };
        Answer::Reply(Frame::with_payload(frame.kind, frame.request_id, body, payload))
    }

    fn metadata(&self) -> MetadataReply {
        let broker = |(node_id, address): (i32, &HostPort)| BrokerView {
            node_id: NodeId(node_id),
            endpoints: Endpoints {
                client: address.clone(),
                peer: address.clone(),
                admin: address.clone(),
            },
            rack: None,
            broker_epoch: 1,
            fenced: false,
            in_controlled_shutdown: false,
            offline_directories: BTreeMap::new(),
            offline_replicas: 0,
        };
        let partition = PartitionView {
            partition: 0,
            leader: NodeId(self.leader),
            leader_epoch: LeaderEpoch(self.leader_epoch),
            partition_epoch: PartitionEpoch(self.leader_epoch),
            replicas: vec![NodeId(1), NodeId(2)],
            isr: vec![NodeId(1), NodeId(2)],
            elr: Vec::new(),
            adding: Vec::new(),
            removing: Vec::new(),
        };
        let topic = TopicView {
            topic_id: Uuid([7; 16]),
            name: TOPIC.to_owned(),
            partitions: vec![partition],
            configs: BTreeMap::new(),
        };
        MetadataReply {
            cluster_id: Uuid([9; 16]),
            controller: Some(NodeId(1)),
            brokers: (1..).zip(&self.addresses).map(broker).collect(),
            topics: vec![topic],
            unknown: Vec::new(),
        }
    }

    fn answer(&mut self, me: i32, frame: &Frame) -> Answer {
        match frame.kind {
            Kind::ClientMetadata => reply(frame, &self.metadata()),
            Kind::ClientProduce => self.produce(me, frame),
            Kind::ClientFetch => self.fetch(me, frame),
            Kind::ClientInitProducerId => {
                self.next_producer_id += 1;
                let (producer_id, producer_epoch) = (self.next_producer_id, 0);
                let answer = InitProducerIdReply { producer_id, producer_epoch };
                reply(frame, &Ok::<_, Refusal>(answer))
            }
            Kind::ClientListOffsets => {
                let request: ListOffsetsRequest = frame.body().expect("from our client");
                let (_, _, query) = request.entries[0];
                let offset = if query == OffsetQuery::Latest { self.end_offset } else { 0 };
                let leader_epoch = LeaderEpoch(self.leader_epoch);
                let listed = ListedOffset { offset, timestamp: -1, leader_epoch };
                reply(frame, &ListOffsetsReply { results: vec![Ok(listed)] })
            }
            kind => panic!("{kind:?} is not part of the script"),
        }
    }
}

fn reply<T: serde::Serialize>(frame: &Frame, body: &T) -> Answer {
    Answer::Reply(Frame::new(frame.kind, frame.request_id, body))
}

/// Batches with this value are refused for good.
const POISON: &str = "poison";

fn is_poisoned(batch: &[u8]) -> bool {
    batch.windows(POISON.len()).any(|window| window == POISON.as_bytes())
}

async fn serve(listener: TcpListener, me: i32, world: Arc<Mutex<World>>) {
    let identity = Arc::new(Identity::new(NodeId(me), Uuid([9; 16]), Some(Uuid([9; 16]))));
    while let Ok((mut stream, _)) = listener.accept().await {
        let (identity, world) = (identity.clone(), world.clone());
        tokio::spawn(async move {
            let mut preface = [0; 4];
            tokio::io::AsyncReadExt::read_exact(&mut stream, &mut preface).await.ok()?;
            let (mut reader, mut writer) = split(stream, 1 << 20);
            let served = [Purpose::Client];
            accept_hello(&mut reader, &mut writer, &identity, &served, Limits::DEFAULT)
                .await
                .ok()??;
            while let Ok(Some(frame)) = reader.read_frame().await {
                let answer = world.lock().answer(me, &frame);
                match answer {
                    Answer::Reply(frame) => write(&mut writer, &frame).await?,
                    Answer::Break => return None,
                    Answer::Silence => {}
                }
            }
            Some(())
        });
    }
}

async fn write(writer: &mut FrameWriter, frame: &Frame) -> Option<()> {
    writer.write_frame(frame).await.ok()
}

async fn brokers(seed: u64, faults: u64) -> (Arc<Mutex<World>>, Client) {
    let world = Arc::new(Mutex::new(World {
        addresses: Vec::new(),
        leader: 1,
        leader_epoch: 0,
        log: Vec::new(),
        end_offset: 0,
        producers: BTreeMap::new(),
        next_producer_id: 0,
        random: seed,
        faults,
    }));
    for me in 1..=2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        world.lock().addresses.push(HostPort { host: "127.0.0.1".to_owned(), port });
        tokio::spawn(serve(listener, me, world.clone()));
    }
    let bootstrap: Vec<String> = world.lock().addresses.iter().map(ToString::to_string).collect();
    let client = Client::connect(&bootstrap).await.expect("both listen");
    (world, client)
}

/// What the log holds.
fn values(world: &Mutex<World>) -> Vec<String> {
    let world = world.lock();
    let mut values = Vec::new();
    for batch in crate::record::batches(&world.log) {
        let batch = batch.expect("ours");
        for record in crate::record::records(&batch, 1 << 20).expect("ours").iter() {
            let value = record.expect("ours").value.expect("a value").to_vec();
            values.push(String::from_utf8(value).expect("text"));
        }
    }
    values
}

fn tiny_batches() -> ProducerConfig {
    ProducerConfig { batch_bytes: 100, linger: Duration::ZERO, ..ProducerConfig::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_every_record_is_written_once_in_order() {
    let seed = random::seed();
    println!("seed {seed}");
    let (world, client) = brokers(seed, 20).await;
    let producer = client.producer(tiny_batches());
    let mut deliveries = Vec::new();
    for number in 0..300 {
        let record = Record::to(TOPIC).value(number.to_string());
        deliveries.push(producer.send(record).await.expect("queued"));
    }
    for (number, delivery) in (0..).zip(deliveries) {
        let delivered = delivery.await.unwrap_or_else(|e| panic!("{number}: {e} (seed {seed})"));
        assert_eq!(delivered.offset, number, "seed {seed}");
    }
    let expected: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    assert_eq!(values(&world), expected, "seed {seed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_record_fails_alone_and_the_others_keep_their_order() {
    let seed = random::seed();
    println!("seed {seed}");
    let (world, client) = brokers(seed, 10).await;
    let producer = client.producer(tiny_batches());
    let mut deliveries = Vec::new();
    for number in 0..200 {
        let value = if number % 25 == 7 { POISON.to_owned() } else { format!("{number:070}") };
        // Longer than half of a batch: each travels alone.
        let record = Record::to(TOPIC).value(value.clone()).header("pad", "x".repeat(20));
        deliveries.push((value, producer.send(record).await.expect("queued")));
    }
    let mut expected = Vec::new();
    for (value, delivery) in deliveries {
        match delivery.await {
            Ok(_) => expected.push(value),
            Err(error) => {
                assert_eq!(error.code(), Some(ErrorCode::InvalidRecord), "{error} (seed {seed})");
                assert_eq!(value, POISON, "seed {seed}");
            }
        }
    }
    assert_eq!(expected.len(), 192, "seed {seed}");
    assert_eq!(values(&world), expected, "seed {seed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_follows_the_leader_and_misses_nothing() {
    let seed = random::seed();
    println!("seed {seed}");
    let (world, client) = brokers(seed, 0).await;
    let producer = client.producer(tiny_batches());
    for number in 0..200 {
        producer.send(Record::to(TOPIC).value(number.to_string())).await.expect("queued");
    }
    producer.flush().await;
    world.lock().faults = 20;
    let mut consumer = client.consumer(ConsumerConfig::default());
    consumer.assign(TOPIC, 0, StartAt::Earliest).await.expect("it exists");
    let mut read = 0;
    while read < 200 {
        let chunk = consumer.next().await.unwrap_or_else(|e| panic!("{e} (seed {seed})"));
        for record in chunk.records {
            assert_eq!(record.offset, read, "seed {seed}");
            assert_eq!(record.value.as_deref(), Some(read.to_string().as_bytes()), "seed {seed}");
            read += 1;
        }
    }
}
