//! The life of a broker against a scripted controller.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::timeout;

use super::super::testing::{Answer, ScriptedControl};
use super::*;
use crate::metadata::config::Durability;
use crate::storage::{CompactionConfig, LogDirs, StorageConfig};
use crate::types::{HostPort, NodeId, Uuid};

const LONG: Duration = Duration::from_secs(30);

struct Fixture {
    control: Arc<ScriptedControl>,
    publication: Arc<Publication>,
    identity: Arc<Identity>,
    signals: Arc<Signals>,
    offline: Arc<Offline>,
    _directory: tempfile::TempDir,
}

impl Fixture {
    fn start(script: impl FnMut(&ControllerRequest) -> Answer + Send + 'static) -> Self {
        let mut script = script;
        let control = ScriptedControl::new(move |call| script(&call.request));
        let identity = Identity::new(NodeId(1), Uuid([1; 16]), Some(Uuid([9; 16])));
        let directory = tempfile::tempdir().expect("a directory");
        let storage = StorageConfig {
            dirs: vec![directory.path().to_owned()],
            durability: Durability::Fsync,
            retention_check_interval: Duration::from_secs(300),
            recovery_threads: 1,
            compaction: CompactionConfig::default(),
            min_free: Some(0),
            progress: std::sync::Arc::default(),
            on_trouble: Arc::new(|| {}),
        };
        let (logs, _) = LogDirs::open(storage, Arc::new(|_| {})).expect("an empty directory");
        let fixture = Self {
            control,
            publication: Arc::new(Publication::new()),
            identity: Arc::new(identity),
            signals: Arc::new(Signals::new()),
            offline: Arc::new(Offline::new(logs, Arc::default())),
            _directory: directory,
        };
        let here = HostPort { host: "127.0.0.1".to_owned(), port: 1 };
        let lifecycle = Lifecycle {
            control: fixture.control.clone(),
            identity: fixture.identity.clone(),
            publication: fixture.publication.clone(),
            endpoints: Endpoints { client: here.clone(), peer: here.clone(), admin: here },
            rack: None,
            previous_broker_epoch: BrokerEpoch::NONE,
            lives: Arc::new(Lives::new(Vec::new(), Durability::Fsync)),
            heartbeat_interval: Duration::from_millis(10),
            controlled_shutdown_max: LONG,
            signals: fixture.signals.clone(),
            offline: fixture.offline.clone(),
            metrics: Metrics::default(),
        };
        tokio::spawn(lifecycle.run());
        fixture
    }

    async fn reaches(&self, phase: Phase) {
        timeout(LONG, self.signals.wait_for(|current| *current == phase))
            .await
            .unwrap_or_else(|_| panic!("not {phase:?} but {:?}", self.signals.phase()));
    }
}

fn registered(epoch: i64) -> Answer {
    Ok(Ok(ControllerReply::RegisterBroker { broker_epoch: BrokerEpoch(epoch) }))
}

fn beat(is_fenced: bool, should_shut_down: bool) -> Answer {
    Ok(Ok(ControllerReply::Heartbeat(HeartbeatReply {
        is_fenced,
        is_caught_up: true,
        in_controlled_shutdown: false,
        should_shut_down,
    })))
}

fn refused(code: ErrorCode) -> Answer {
    Ok(Err(Refusal::new(code, "")))
}

#[tokio::test]
async fn a_broker_registers_catches_up_runs_and_stops_with_consent() {
    let fixture = Fixture::start(|request| match request {
        ControllerRequest::RegisterBroker(_) => registered(7),
        ControllerRequest::Heartbeat(beat_) if beat_.want_shutdown => beat(false, true),
        ControllerRequest::Heartbeat(beat_) => beat(beat_.applied_index < 7, false),
        other => panic!("{other:?}"),
    });
    fixture.reaches(Phase::CatchingUp).await;
    assert_eq!(fixture.identity.broker_epoch(), BrokerEpoch(7));
    fixture.publication.set_applied(6);
    assert_ne!(fixture.signals.phase(), Phase::Running);
    fixture.publication.set_applied(7);
    fixture.reaches(Phase::Running).await;
    fixture.signals.stop();
    fixture.reaches(Phase::Stopped).await;
}

#[tokio::test]
async fn a_duplicate_is_retried_and_a_stale_epoch_registers_again() {
    let epochs = Arc::new(Mutex::new(Vec::new()));
    let (seen, mut registrations) = (epochs.clone(), 0);
    let fixture = Fixture::start(move |request| match request {
        ControllerRequest::RegisterBroker(_) => {
            registrations += 1;
            match registrations {
                1 => refused(ErrorCode::DuplicateBrokerRegistration),
                2 => Err("lost".to_owned()),
                3 => registered(5),
                _ => registered(9),
            }
        }
        ControllerRequest::Heartbeat(beat_) => {
            seen.lock().push(beat_.broker_epoch);
            match beat_.broker_epoch {
                BrokerEpoch(5) => refused(ErrorCode::StaleBrokerEpoch),
                _ => beat(false, false),
            }
        }
        other => panic!("{other:?}"),
    });
    fixture.publication.set_applied(9);
    fixture.reaches(Phase::Running).await;
    assert_eq!(fixture.identity.broker_epoch(), BrokerEpoch(9));
    assert_eq!(epochs.lock().first(), Some(&BrokerEpoch(5)));
}

#[tokio::test]
async fn without_a_controller_a_stop_is_bounded() {
    let fixture = Fixture::start(|request| match request {
        ControllerRequest::RegisterBroker(_) => registered(1),
        _ => Err("no controller".to_owned()),
    });
    fixture.reaches(Phase::CatchingUp).await;
    fixture.signals.stop();
    fixture.reaches(Phase::Stopped).await;
}

#[tokio::test]
async fn silence_of_the_controller_is_noticed_and_its_end_too() {
    let is_silent = Arc::new(AtomicBool::new(false));
    let silent = is_silent.clone();
    let fixture = Fixture::start(move |request| match request {
        ControllerRequest::RegisterBroker(_) => registered(1),
        _ if silent.load(Ordering::Relaxed) => Err("no controller".to_owned()),
        _ => beat(false, false),
    });
    fixture.publication.set_applied(1);
    fixture.reaches(Phase::Running).await;
    is_silent.store(true, Ordering::Relaxed);
    fixture.reaches(Phase::Unheard).await;
    is_silent.store(false, Ordering::Relaxed);
    fixture.reaches(Phase::Running).await;
}

#[tokio::test]
async fn a_broker_that_was_never_registered_stops_at_once() {
    let fixture = Fixture::start(|_| Err("no controller".to_owned()));
    fixture.signals.stop();
    fixture.reaches(Phase::Stopped).await;
}
