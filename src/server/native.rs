//! Native connections of Rust programs to the clients port.
//!
//! Calls of one connection run beside each other, and replies leave as they come, by request id. Produce requests are
//! appended in the order of their frames, which is what keeps a producer's batches in order.
//!
//! Invariant: what nodes say to each other (registrations, heartbeats, ISR changes) is refused here, whoever says it.

mod tools;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use super::ServerConfig;
use crate::broker::{Broker, FetchPartition, FetchQuery, FetchedSlice};
use crate::controller::{ControllerCall, ControllerReply, ControllerRequest, Refusal};
use crate::metadata::{BrokerImage, MetadataImage, TopicImage};
use crate::net::{Limits, Reply, accept_hello, split};
use crate::protocol::ErrorCode;
use crate::protocol::native::{
    BrokerView, DeleteRecordsReply, DeleteRecordsRequest, DescribeConfigsRequest, ExplainRequest,
    FetchReply, FetchRequest, Fetched, Frame, InitProducerIdReply, InitProducerIdRequest, Kind,
    ListOffsetsReply, ListOffsetsRequest, MetadataReply, MetadataRequest, PartitionError,
    PartitionView, ProduceReply, ProduceRequest, Produced, Purpose, QuorumStatusRequest, TopicView,
    WireError,
};
use crate::types::{ConfigResource, LeaderEpoch, TopicIdPartition, random};

/// In the audit trail, until clients can say who they are.
const PRINCIPAL: &str = "User:ANONYMOUS";
/// How long an admin request waits for the active controller and for every live broker to serve its result.
const ADMIN_WAIT_MAX: Duration = Duration::from_secs(8);
/// Longest wait of a fetch.
const FETCH_WAIT_MAX: Duration = Duration::from_secs(60);
/// Calls that were taken get this long to be answered when the node stops.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// Replies of one connection that wait for its socket.
const REPLIES_MAX: usize = 16;
/// Fetch replies of one connection that are in memory at a time.
const FETCHES_IN_MEMORY_MAX: usize = 2;

/// Serves one connection whose preface was read already, until it ends or `shutdown` turns true.
pub(super) async fn serve(
    stream: TcpStream,
    broker: Arc<Broker>,
    config: &ServerConfig,
    shutdown: watch::Receiver<bool>,
) {
    if let Err(error) = serve_calls(stream, broker, config, shutdown).await {
        debug!(%error, "a native connection ended");
    }
}

async fn serve_calls(
    stream: TcpStream,
    broker: Arc<Broker>,
    config: &ServerConfig,
    mut shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let limits = Limits { frame_size_max: config.request_size_max, ..Limits::DEFAULT };
    let (mut reader, mut writer) = split(stream, limits.frame_size_max);
    let served = [Purpose::Client];
    let hello = accept_hello(&mut reader, &mut writer, broker.identity(), &served, limits).await?;
    if hello.is_none() {
        return Ok(());
    }

    let (replies, mut to_write) = mpsc::channel::<Frame>(REPLIES_MAX);
    let mut writing = JoinSet::new();
    writing.spawn(async move {
        while let Some(frame) = to_write.recv().await {
            writer.write_frame(&frame).await?;
        }
        io::Result::Ok(())
    });
    let service = Service {
        broker,
        fetch_size_max: config.fetch_size_max,
        memory: Arc::new(Semaphore::new(FETCHES_IN_MEMORY_MAX)),
        replies,
        shutdown: shutdown.clone(),
    };
    // Dropped with the connection: nobody is left to be answered.
    let mut calls = JoinSet::new();
    loop {
        let frame = tokio::select! {
            biased; // A client that never pauses does not hold up a shutdown.
            _ = shutdown.wait_for(|stop| *stop) => break,
            _ = writing.join_next() => return Ok(()),
            // Makes room, so it comes before the next frame.
            Some(_) = calls.join_next() => continue,
            frame = reader.read_frame(), if calls.len() < limits.calls_max => frame?,
        };
        match frame {
            Some(frame) => service.start(frame, &mut calls),
            None => return Ok(()),
        }
    }
    drop(service);
    let _ = timeout(LAST_ANSWERS, async {
        while calls.join_next().await.is_some() {}
        writing.join_next().await
    })
    .await;
    Ok(())
}

/// What the calls of one connection share.
#[derive(Clone)]
struct Service {
    broker: Arc<Broker>,
    fetch_size_max: usize,
    /// One permit for each fetch reply that is in memory.
    memory: Arc<Semaphore>,
    replies: mpsc::Sender<Frame>,
    shutdown: watch::Receiver<bool>,
}

impl Service {
    /// Takes one call. What must keep the order of the frames has happened when this returns.
    fn start(&self, frame: Frame, calls: &mut JoinSet<()>) {
        let (kind, request_id) = (frame.kind, frame.request_id);
        let service = self.clone();
        if kind == Kind::ClientProduce {
            let produced = start_produce(&self.broker, &frame);
            calls.spawn(async move {
                let answer = match produced {
                    Ok(produced) => Ok(Reply::new(&ProduceReply { results: produced.await })),
                    Err(error) => Err(error),
                };
                service.answer(kind, request_id, answer).await;
            });
            return;
        }
        calls.spawn(async move {
            match kind {
                Kind::ClientFetch => service.fetch(frame).await,
                _ => {
                    let answer = service.call(frame).await;
                    service.answer(kind, request_id, answer).await;
                }
            }
        });
    }

    async fn answer(&self, kind: Kind, request_id: u64, answer: Result<Reply, WireError>) {
        let frame = match answer {
            Ok(Reply { body, payload }) => Frame { kind, request_id, body: body.into(), payload },
            Err(error) => Frame::new(Kind::Error, request_id, &error),
        };
        // A closed channel means that the connection is gone, and with it whoever asked.
        let _ = self.replies.send(frame).await;
    }

    async fn call(&self, frame: Frame) -> Result<Reply, WireError> {
        match frame.kind {
            Kind::ClientMetadata => Ok(Reply::new(&self.metadata(body(&frame)?).await)),
            Kind::ClientListOffsets => {
                let request: ListOffsetsRequest = body(&frame)?;
                let list = |(topic_id, partition, query)| {
                    let partition = TopicIdPartition { topic_id, partition };
                    self.broker.list_offset(partition, query, LeaderEpoch::NONE)
                };
                let results = request.entries.into_iter().map(list).collect();
                Ok(Reply::new(&ListOffsetsReply { results }))
            }
            Kind::ClientDeleteRecords => {
                let DeleteRecordsRequest { timeout_ms, entries } = body(&frame)?;
                let timeout = Duration::from_millis(timeout_ms.into()).min(ADMIN_WAIT_MAX);
                let entry = |(topic_id, partition, offset)| {
                    (TopicIdPartition { topic_id, partition }, offset)
                };
                let entries = entries.into_iter().map(entry).collect();
                let results = self.broker.delete_records(entries, timeout).await;
                Ok(Reply::new(&DeleteRecordsReply { results }))
            }
            Kind::ClientInitProducerId => {
                let InitProducerIdRequest = body(&frame)?;
                let answer = self.broker.init_producer_id().await;
                let answer = answer.map(|(producer_id, producer_epoch)| InitProducerIdReply {
                    producer_id,
                    producer_epoch,
                });
                Ok(Reply::new(&answer))
            }
            Kind::ClientQuorumStatus => {
                let QuorumStatusRequest = body(&frame)?;
                Ok(Reply::new(&self.broker.quorum_status()))
            }
            Kind::ClientExplain => {
                let ExplainRequest { topic, partition } = body(&frame)?;
                let image = self.broker.settled_image().await;
                Ok(Reply::new(&image.explain(&topic, partition)))
            }
            Kind::ClientDescribeConfigs => {
                let request: DescribeConfigsRequest = body(&frame)?;
                Ok(Reply::new(&self.broker.describe_configs(&request.resource)))
            }
            Kind::ClientImport => Ok(tools::import(&self.broker, &frame, body(&frame)?).await),
            Kind::ClientReadReplica => {
                let request = body(&frame)?;
                let Ok(_memory) = self.memory.acquire().await else {
                    return Err(WireError::Unexpected);
                };
                Ok(tools::read_replica(&self.broker, request, self.fetch_size_max))
            }
            Kind::Controller => {
                let call: ControllerCall = body(&frame)?;
                Ok(Reply::new(&self.admin(call.request).await))
            }
            _ => Err(WireError::Unexpected),
        }
    }

    async fn metadata(&self, request: MetadataRequest) -> MetadataReply {
        let image = self.broker.settled_image().await;
        let quorum = self.broker.quorum_status();
        let mut unknown = Vec::new();
        let topics = match request.topics {
            None => image.topics.values().map(|topic| topic_view(&image, topic)).collect(),
            Some(names) => {
                let find = |name: String| match image.topic(&name) {
                    Some(topic) => Some(topic_view(&image, topic)),
                    None => {
                        unknown.push(name);
                        None
                    }
                };
                names.into_iter().filter_map(find).collect()
            }
        };
        MetadataReply {
            cluster_id: quorum.cluster_id,
            controller: quorum.leader_id,
            brokers: image.brokers.values().map(|broker| broker_view(&image, broker)).collect(),
            topics,
            unknown,
        }
    }

    async fn admin(&self, mut request: ControllerRequest) -> Result<ControllerReply, Refusal> {
        match &mut request {
            ControllerRequest::CreateTopics { topics, .. } => {
                for topic in topics {
                    topic.topic_id = random::uuid();
                }
            }
            ControllerRequest::DeleteTopics { .. }
            | ControllerRequest::CreatePartitions { .. }
            | ControllerRequest::AlterConfigs { .. }
            | ControllerRequest::Drain { .. }
            | ControllerRequest::UnregisterBroker { .. }
            | ControllerRequest::ElectLeaders { .. }
            | ControllerRequest::Reassign { .. }
            | ControllerRequest::AddVoter { .. }
            | ControllerRequest::RemoveVoter { .. }
            | ControllerRequest::TransferController { .. } => {}
            ControllerRequest::RegisterBroker(_)
            | ControllerRequest::Heartbeat(_)
            | ControllerRequest::AlterPartition(_)
            | ControllerRequest::ReportOffline(_)
            | ControllerRequest::AllocateProducerIds { .. } => {
                let message = "only nodes may ask this, on the peers port";
                return Err(Refusal::new(ErrorCode::InvalidRequest, message));
            }
        }
        self.broker.admin(PRINCIPAL, request, ADMIN_WAIT_MAX).await
    }

    async fn fetch(&self, frame: Frame) {
        let request: FetchRequest = match body(&frame) {
            Ok(request) => request,
            Err(error) => return self.answer(frame.kind, frame.request_id, Err(error)).await,
        };
        let size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        let entries = request.entries.iter().map(|entry| FetchPartition {
            partition: TopicIdPartition { topic_id: entry.topic_id, partition: entry.partition },
            leader_epoch: entry.leader_epoch,
            last_fetched_epoch: LeaderEpoch::NONE,
            fetch_offset: entry.fetch_offset,
            bytes_max: size(entry.bytes_max),
        });
        let query = FetchQuery {
            wait: Duration::from_millis(u64::from(request.wait_ms)).min(FETCH_WAIT_MAX),
            bytes_min: size(request.bytes_min),
            bytes_max: size(request.bytes_max).min(self.fetch_size_max),
            entries: entries.collect(),
        };
        let mut shutdown = self.shutdown.clone();
        let found = tokio::select! {
            found = self.broker.fetch(query) => found,
            // It asks somebody else then.
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        let Ok(_memory) = self.memory.acquire().await else { return };
        let answer = read_slices(found);
        self.answer(frame.kind, frame.request_id, Ok(answer)).await;
    }
}

fn body<T: serde::de::DeserializeOwned>(frame: &Frame) -> Result<T, WireError> {
    frame.body().map_err(|error| WireError::Malformed(error.to_string()))
}

/// Appends the batches of a request. The future completes when they count as written.
fn start_produce(
    broker: &Broker,
    frame: &Frame,
) -> Result<impl Future<Output = Vec<Result<Produced, PartitionError>>> + Send + use<>, WireError> {
    let request: ProduceRequest = body(frame)?;
    let mut payload: Bytes = frame.payload.clone();
    let mut entries = Vec::with_capacity(request.entries.len());
    for entry in &request.entries {
        let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
        if size > payload.len() {
            return Err(WireError::Malformed("the payload is shorter than its entries".to_owned()));
        }
        let partition = TopicIdPartition { topic_id: entry.topic_id, partition: entry.partition };
        // The only copy: the broker writes its own fields into the batch.
        entries.push((partition, BytesMut::from(&payload.split_to(size)[..])));
    }
    if !payload.is_empty() {
        return Err(WireError::Malformed("the payload is longer than its entries".to_owned()));
    }
    let timeout = Duration::from_millis(u64::from(request.timeout_ms));
    Ok(broker.produce(entries, request.acks, timeout))
}

/// Reads what was found. A file that cannot be read fails its own partition only.
fn read_slices(found: Vec<Result<FetchedSlice, PartitionError>>) -> Reply {
    let total = found.iter().flatten().map(|fetched| fetched.slice.size).sum();
    let mut payload = Vec::with_capacity(total);
    let mut results = Vec::with_capacity(found.len());
    for fetched in found {
        results.push(fetched.and_then(|fetched| {
            let before = payload.len();
            fetched.slice.read_into(&mut payload).map_err(|error| {
                payload.truncate(before);
                PartitionError {
                    code: ErrorCode::KafkaStorageError,
                    message: error.to_string(),
                    leader: None,
                    record_errors: Vec::new(),
                }
            })?;
            let size = u32::try_from(payload.len() - before).expect("below fetch_size_max");
            let (high_watermark, log_start_offset) =
                (fetched.high_watermark, fetched.log_start_offset);
            Ok(Fetched { high_watermark, log_start_offset, size })
        }));
    }
    Reply { payload: payload.into(), ..Reply::new(&FetchReply { results }) }
}

fn broker_view(image: &MetadataImage, broker: &BrokerImage) -> BrokerView {
    let offline = image.offline.get(&broker.registration.node_id);
    BrokerView {
        offline_directories: offline.map(|it| it.directories.clone()).unwrap_or_default(),
        offline_replicas: offline.map_or(0, |it| it.replicas.len() as u64),
        node_id: broker.registration.node_id,
        endpoints: broker.registration.endpoints.clone(),
        rack: broker.registration.rack.clone(),
        broker_epoch: broker.broker_epoch.0,
        fenced: broker.fenced,
        in_controlled_shutdown: broker.in_controlled_shutdown,
    }
}

fn topic_view(image: &MetadataImage, topic: &TopicImage) -> TopicView {
    let partitions = topic.partitions.iter().enumerate().map(|(number, state)| PartitionView {
        partition: i32::try_from(number).expect("partition numbers are 32 bits"),
        leader: state.leader,
        leader_epoch: state.leader_epoch,
        partition_epoch: state.partition_epoch,
        replicas: state.replicas.clone(),
        isr: state.isr.clone(),
        elr: state.elr.clone(),
        adding: state.adding.clone(),
        removing: state.removing.clone(),
    });
    let configs = image.configs.get(&ConfigResource::Topic(topic.name.clone()));
    let configs = configs.into_iter().flatten();
    TopicView {
        topic_id: topic.topic_id,
        name: topic.name.to_string(),
        partitions: partitions.collect(),
        configs: configs.map(|(key, value)| (key.clone(), value.clone())).collect(),
    }
}
