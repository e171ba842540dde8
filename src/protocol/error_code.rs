//! Kafka's error codes, under Kafka's names.

use serde::{Deserialize, Serialize};

macro_rules! error_codes {
    ($($code:literal $name:ident $kafka:literal,)*) => {
        /// Why a request was refused. `None` is success.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum ErrorCode { $($name,)* }

        impl ErrorCode {
            /// The number on Kafka's wire.
            pub fn code(self) -> i16 {
                match self { $(Self::$name => $code,)* }
            }

            /// As Kafka spells it: `UNKNOWN_TOPIC_OR_PARTITION`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $kafka,)* }
            }

            /// Unknown numbers read as [`ErrorCode::UnknownServerError`].
            pub fn from_code(code: i16) -> Self {
                match code { $($code => Self::$name,)* _ => Self::UnknownServerError }
            }
        }
    };
}

error_codes! {
    -1 UnknownServerError "UNKNOWN_SERVER_ERROR",
    0 None "NONE",
    1 OffsetOutOfRange "OFFSET_OUT_OF_RANGE",
    2 CorruptMessage "CORRUPT_MESSAGE",
    3 UnknownTopicOrPartition "UNKNOWN_TOPIC_OR_PARTITION",
    5 LeaderNotAvailable "LEADER_NOT_AVAILABLE",
    6 NotLeaderOrFollower "NOT_LEADER_OR_FOLLOWER",
    7 RequestTimedOut "REQUEST_TIMED_OUT",
    10 MessageTooLarge "MESSAGE_TOO_LARGE",
    13 NetworkException "NETWORK_EXCEPTION",
    14 CoordinatorLoadInProgress "COORDINATOR_LOAD_IN_PROGRESS",
    15 CoordinatorNotAvailable "COORDINATOR_NOT_AVAILABLE",
    16 NotCoordinator "NOT_COORDINATOR",
    17 InvalidTopicException "INVALID_TOPIC_EXCEPTION",
    18 RecordListTooLarge "RECORD_LIST_TOO_LARGE",
    19 NotEnoughReplicas "NOT_ENOUGH_REPLICAS",
    20 NotEnoughReplicasAfterAppend "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    21 InvalidRequiredAcks "INVALID_REQUIRED_ACKS",
    32 InvalidTimestamp "INVALID_TIMESTAMP",
    35 UnsupportedVersion "UNSUPPORTED_VERSION",
    36 TopicAlreadyExists "TOPIC_ALREADY_EXISTS",
    37 InvalidPartitions "INVALID_PARTITIONS",
    38 InvalidReplicationFactor "INVALID_REPLICATION_FACTOR",
    39 InvalidReplicaAssignment "INVALID_REPLICA_ASSIGNMENT",
    40 InvalidConfig "INVALID_CONFIG",
    41 NotController "NOT_CONTROLLER",
    42 InvalidRequest "INVALID_REQUEST",
    43 UnsupportedForMessageFormat "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44 PolicyViolation "POLICY_VIOLATION",
    45 OutOfOrderSequenceNumber "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46 DuplicateSequenceNumber "DUPLICATE_SEQUENCE_NUMBER",
    47 InvalidProducerEpoch "INVALID_PRODUCER_EPOCH",
    48 InvalidTxnState "INVALID_TXN_STATE",
    55 OperationNotAttempted "OPERATION_NOT_ATTEMPTED",
    56 KafkaStorageError "KAFKA_STORAGE_ERROR",
    59 UnknownProducerId "UNKNOWN_PRODUCER_ID",
    73 TopicDeletionDisabled "TOPIC_DELETION_DISABLED",
    70 FetchSessionIdNotFound "FETCH_SESSION_ID_NOT_FOUND",
    71 InvalidFetchSessionEpoch "INVALID_FETCH_SESSION_EPOCH",
    74 FencedLeaderEpoch "FENCED_LEADER_EPOCH",
    75 UnknownLeaderEpoch "UNKNOWN_LEADER_EPOCH",
    76 UnsupportedCompressionType "UNSUPPORTED_COMPRESSION_TYPE",
    77 StaleBrokerEpoch "STALE_BROKER_EPOCH",
    78 OffsetNotAvailable "OFFSET_NOT_AVAILABLE",
    80 PreferredLeaderNotAvailable "PREFERRED_LEADER_NOT_AVAILABLE",
    83 EligibleLeadersNotAvailable "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    84 ElectionNotNeeded "ELECTION_NOT_NEEDED",
    85 NoReassignmentInProgress "NO_REASSIGNMENT_IN_PROGRESS",
    87 InvalidRecord "INVALID_RECORD",
    89 ThrottlingQuotaExceeded "THROTTLING_QUOTA_EXCEEDED",
    95 InvalidUpdateVersion "INVALID_UPDATE_VERSION",
    100 UnknownTopicId "UNKNOWN_TOPIC_ID",
    101 DuplicateBrokerRegistration "DUPLICATE_BROKER_REGISTRATION",
    102 BrokerIdNotRegistered "BROKER_ID_NOT_REGISTERED",
    103 InconsistentTopicId "INCONSISTENT_TOPIC_ID",
    104 InconsistentClusterId "INCONSISTENT_CLUSTER_ID",
    106 FetchSessionTopicIdError "FETCH_SESSION_TOPIC_ID_ERROR",
    107 IneligibleReplica "INELIGIBLE_REPLICA",
    108 NewLeaderElected "NEW_LEADER_ELECTED",
    114 MismatchedEndpointType "MISMATCHED_ENDPOINT_TYPE",
    115 UnsupportedEndpointType "UNSUPPORTED_ENDPOINT_TYPE",
    119 InvalidRegistration "INVALID_REGISTRATION",
}
