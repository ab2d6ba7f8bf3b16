BEGIN TRANSACTION;
CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
INSERT INTO "_sqlite_migrations" VALUES(1,'treadle-sqlite','0001_sessions','2026-11-30 23:01:02.963816+00:00');
CREATE TABLE events (
  session_key integer not null references sessions(key),
  seq integer not null,
  time real not null,                     -- seconds since 1970; information, never order
  type text not null,
  turn integer,
  step integer,
  owner text,                             -- the plugin whose event it is; null = treadle's own
  required integer not null check (required in (0, 1)),
  data text not null,                     -- JSON, ASCII
  at text generated always as (strftime('%Y-%m-%dT%H:%M:%fZ', time, 'unixepoch')) virtual,
  primary key (session_key, seq)
) strict;
INSERT INTO "events" VALUES(1,1,1.79607966263130617136e+09,'session/open',NULL,NULL,NULL,1,'{"reason":"new","kernel":"0.1.0","plugins":[["notes",""],["asks",""]]}');
INSERT INTO "events" VALUES(1,2,1.79607966263130617136e+09,'inbox/put',NULL,NULL,NULL,1,'{"message":{"id":"01a22eb0-b627-7830-ac09-466806d97919","role":"user","parts":[{"kind":"text","text":"Wipe it."}]},"lane":"turn","wake":true}');
INSERT INTO "events" VALUES(1,3,1.79607966263130617136e+09,'turn/start',1,NULL,NULL,1,'{}');
INSERT INTO "events" VALUES(1,4,1.79607966263144493103e+09,'step/start',1,1,NULL,1,'{"agent":"agent","digest":"a019ae13cc6aec04be37a8bffdddd08ae4baf87b40d4bd2a625d68bd2bb59050","claims":["01a22eb0-b627-7830-ac09-466806d97919"]}');
INSERT INTO "events" VALUES(1,5,1.79607966263144493103e+09,'user/message',1,1,NULL,1,'{"message":{"id":"01a22eb0-b627-7830-ac09-466806d97919","role":"user","parts":[{"kind":"text","text":"Wipe it."}]}}');
INSERT INTO "events" VALUES(1,6,1.79607966263150525092e+09,'model/request',1,1,NULL,1,'{"attempt":1,"digest":"185e46055f52179db9dabdebfaf4fefd","header":{"model":"script:inline","family":"script","tools":[{"name":"wipe","description":"Wipe.","parameters":{"type":"object","properties":{},"additionalProperties":false}}]}}');
INSERT INTO "events" VALUES(1,7,1.79607966263164138794e+09,'assistant/message',1,1,NULL,1,'{"message":{"id":"01a22eb0-b627-7e34-950e-d2a95300104b","role":"assistant","parts":[{"kind":"call","id":"01a22eb0-b627-7830-ac09-466806d9e457","name":"wipe","arguments":"{}"}],"origin":"model"},"finish":"calls","usage":{"input":10,"output":5}}');
INSERT INTO "events" VALUES(1,8,1.79607966263176059727e+09,'tool/call',1,1,NULL,1,'{"call_id":"01a22eb0-b627-7830-ac09-466806d9e457","arguments":"{}","replay":"never"}');
INSERT INTO "events" VALUES(1,9,1.79607966263176059727e+09,'tool/result',1,1,NULL,1,'{"call_id":"01a22eb0-b627-7830-ac09-466806d9e457","status":"deferred","parts":[{"kind":"text","text":"The call waits for a decision: a person decides"}]}');
INSERT INTO "events" VALUES(1,10,1.79607966263179111483e+09,'step/end',1,1,NULL,1,'{"outcome":"done"}');
INSERT INTO "events" VALUES(1,11,1.79607966263182044033e+09,'turn/end',1,NULL,NULL,1,'{"reason":"waiting","park":true,"steps":1,"usage":{"input":10,"output":5}}');
INSERT INTO "events" VALUES(2,1,1.79607966261115264893e+09,'session/open',NULL,NULL,NULL,1,'{"reason":"new","kernel":"0.1.0","plugins":[["notes",""],["asks",""]]}');
INSERT INTO "events" VALUES(2,2,1.79607966261115264893e+09,'inbox/put',NULL,NULL,NULL,1,'{"message":{"id":"01a22eb0-b613-7bbc-8372-1ff335373eee","role":"user","parts":[{"kind":"text","text":"What is 17 plus 25?"}]},"lane":"turn","wake":true}');
INSERT INTO "events" VALUES(2,3,1.79607966261115264893e+09,'turn/start',1,NULL,NULL,1,'{}');
INSERT INTO "events" VALUES(2,4,1.79607966261150288583e+09,'step/start',1,1,NULL,1,'{"agent":"clerk","digest":"aaa57a34a3032dcef0b5e27859cde8ad5a4deff6cb5d432787fb93bb42b53dd5","claims":["01a22eb0-b613-7bbc-8372-1ff335373eee"]}');
INSERT INTO "events" VALUES(2,5,1.79607966261150288583e+09,'user/message',1,1,NULL,1,'{"message":{"id":"01a22eb0-b613-7bbc-8372-1ff335373eee","role":"user","parts":[{"kind":"text","text":"What is 17 plus 25?"}]}}');
INSERT INTO "events" VALUES(2,6,1.79607966261163234707e+09,'model/request',1,1,NULL,1,'{"attempt":1,"digest":"008905b60725be326b9fe7935ffbda45","header":{"model":"script:inline","family":"script","instructions":[{"text":"Use the tools."}],"tools":[{"name":"add","description":"Add two integers.","parameters":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"],"additionalProperties":false}}]}}');
INSERT INTO "events" VALUES(2,7,1.79607966261746501918e+09,'assistant/message',1,1,NULL,1,'{"message":{"id":"01a22eb0-b619-7564-9d1d-20b63ac65f13","role":"assistant","parts":[{"kind":"call","id":"01a22eb0-b619-7474-a62b-89a9b3d0b92f","name":"add","arguments":"{\"a\": 17, \"b\": 25}"}],"origin":"model"},"finish":"calls","usage":{"input":10,"output":5}}');
INSERT INTO "events" VALUES(2,8,1.79607966261766076082e+09,'tool/call',1,1,NULL,1,'{"call_id":"01a22eb0-b619-7474-a62b-89a9b3d0b92f","arguments":"{\"a\": 17, \"b\": 25}","replay":"never"}');
INSERT INTO "events" VALUES(2,9,1.79607966262159585947e+09,'tool/result',1,1,NULL,1,'{"call_id":"01a22eb0-b619-7474-a62b-89a9b3d0b92f","status":"ok","parts":[{"kind":"text","text":"42"}]}');
INSERT INTO "events" VALUES(2,10,1.79607966262165832512e+09,'step/end',1,1,NULL,1,'{"outcome":"done"}');
INSERT INTO "events" VALUES(2,11,1.796079662621717453e+09,'step/start',1,2,NULL,1,'{"agent":"clerk","digest":"aaa57a34a3032dcef0b5e27859cde8ad5a4deff6cb5d432787fb93bb42b53dd5"}');
INSERT INTO "events" VALUES(2,12,1.79607966262180972095e+09,'model/request',1,2,NULL,1,'{"attempt":1,"digest":"7c0fcc4945fc8c7b59c9a570c6251523","header_seq":6}');
INSERT INTO "events" VALUES(2,13,1.79607966262217473986e+09,'assistant/message',1,2,NULL,1,'{"message":{"id":"01a22eb0-b61e-7844-a62c-557651f908eb","role":"assistant","parts":[{"kind":"text","text":"42."}],"origin":"model"},"finish":"end","usage":{"input":10,"output":5}}');
INSERT INTO "events" VALUES(2,14,1.79607966262220883368e+09,'step/end',1,2,NULL,1,'{"outcome":"done"}');
INSERT INTO "events" VALUES(2,15,1.79607966262231230733e+09,'notes/seen',1,NULL,'notes',0,'{"big":1000000000000000000000000000000,"nul":"\u0000","none":null}');
INSERT INTO "events" VALUES(2,16,1.79607966262231230733e+09,'turn/end',1,NULL,NULL,1,'{"reason":"completed","park":false,"steps":2,"usage":{"input":20,"output":10}}');
INSERT INTO "events" VALUES(2,17,1.79607966262293744083e+09,'session/open',NULL,NULL,NULL,1,'{"reason":"resume","kernel":"0.1.0","plugins":[["notes",""],["asks",""]]}');
INSERT INTO "events" VALUES(2,18,1.79607966262293744083e+09,'inbox/put',NULL,NULL,NULL,1,'{"message":{"id":"01a22eb0-b61e-7844-a62c-557651f94c00","role":"user","parts":[{"kind":"text","text":"Try the other one. \ud83d\ude00"}]},"lane":"turn","wake":true}');
INSERT INTO "events" VALUES(2,19,1.79607966262293744083e+09,'turn/start',2,NULL,NULL,1,'{}');
INSERT INTO "events" VALUES(2,20,1.79607966262314271924e+09,'step/start',2,1,NULL,1,'{"agent":"agent","digest":"f41ecb7aef03c7b2c0bb7aa40dcdda392e18cabbda090f7af4223b6fd514d50c","claims":["01a22eb0-b61e-7844-a62c-557651f94c00"]}');
INSERT INTO "events" VALUES(2,21,1.79607966262314271924e+09,'user/message',2,1,NULL,1,'{"message":{"id":"01a22eb0-b61e-7844-a62c-557651f94c00","role":"user","parts":[{"kind":"text","text":"Try the other one. \ud83d\ude00"}]}}');
INSERT INTO "events" VALUES(2,22,1.7960796626232433319e+09,'model/request',2,1,NULL,1,'{"attempt":1,"digest":"26ad033fadb641bba5232639db70f780","header":{"model":"script:inline","family":"script","tools":[{"name":"fail","description":"Fail with an odd text.","parameters":{"type":"object","properties":{},"additionalProperties":false}}]}}');
INSERT INTO "events" VALUES(2,23,1.79607966262339329723e+09,'assistant/message',2,1,NULL,1,'{"message":{"id":"01a22eb0-b61f-7dd0-bd0f-5f62731b19c2","role":"assistant","parts":[{"kind":"call","id":"01a22eb0-b61f-7dd0-bd0f-5f62731a5121","name":"fail","arguments":"{}"}],"origin":"model"},"finish":"calls","usage":{"input":10,"output":5}}');
INSERT INTO "events" VALUES(2,24,1.79607966262351107598e+09,'tool/call',2,1,NULL,1,'{"call_id":"01a22eb0-b61f-7dd0-bd0f-5f62731a5121","arguments":"{}","replay":"never"}');
INSERT INTO "events" VALUES(2,25,1.7960796626292665005e+09,'tool/result',2,1,NULL,1,'{"call_id":"01a22eb0-b61f-7dd0-bd0f-5f62731a5121","status":"error","parts":[{"kind":"text","text":"fail failed: ValueError: a\u0000b \ud800"}]}');
INSERT INTO "events" VALUES(2,26,1.79607966262932348252e+09,'step/end',2,1,NULL,1,'{"outcome":"done"}');
INSERT INTO "events" VALUES(2,27,1.79607966262936568258e+09,'step/start',2,2,NULL,1,'{"agent":"agent","digest":"f41ecb7aef03c7b2c0bb7aa40dcdda392e18cabbda090f7af4223b6fd514d50c"}');
INSERT INTO "events" VALUES(2,28,1.79607966262945270541e+09,'model/request',2,2,NULL,1,'{"attempt":1,"digest":"2601b907335a3609609e830c01c67a21","header_seq":22}');
INSERT INTO "events" VALUES(2,29,1.79607966262967658046e+09,'assistant/message',2,2,NULL,1,'{"message":{"id":"01a22eb0-b625-7824-b7dd-04c1a8aeeea1","role":"assistant","parts":[{"kind":"text","text":"It failed."}],"origin":"model"},"finish":"end","usage":{"input":10,"output":5}}');
INSERT INTO "events" VALUES(2,30,1.79607966262970161438e+09,'step/end',2,2,NULL,1,'{"outcome":"done"}');
INSERT INTO "events" VALUES(2,31,1.79607966262979984288e+09,'notes/seen',2,NULL,'notes',0,'{"big":1000000000000000000000000000000,"nul":"\u0000","none":null}');
INSERT INTO "events" VALUES(2,32,1.79607966262979984288e+09,'turn/end',2,NULL,NULL,1,'{"reason":"completed","park":false,"steps":2,"usage":{"input":20,"output":10}}');
INSERT INTO "events" VALUES(2,33,1.79607966262990212443e+09,'session/meta',NULL,NULL,NULL,1,'{"title":"Sums","labels":["numbers"],"metadata":{"k\u0000":["x"]}}');
INSERT INTO "events" VALUES(2,34,1.79607966263004803662e+09,'context/edit',NULL,NULL,NULL,1,'{"first":5,"last":13,"put":[{"kind":"text","text":"We added 17 and 25: 42."}],"plugin":"golden"}');
INSERT INTO "events" VALUES(3,1,1.79607966263054800041e+09,'session/open',NULL,NULL,NULL,1,'{"reason":"new","kernel":"0.1.0","plugins":[["notes",""],["asks",""]]}');
INSERT INTO "events" VALUES(3,2,1.79607966263054800041e+09,'inbox/put',NULL,NULL,NULL,1,'{"message":{"id":"01a22eb0-b626-7064-959e-ecabf1d0b99f","role":"user","parts":[{"kind":"text","text":"Are you there?"}]},"lane":"turn","wake":true}');
INSERT INTO "events" VALUES(3,3,1.79607966263054800041e+09,'turn/start',1,NULL,NULL,1,'{}');
INSERT INTO "events" VALUES(3,4,1.79607966263072657588e+09,'step/start',1,1,NULL,1,'{"agent":"agent","digest":"35e4a95ae7223183959b6537f49ea8504d740aa62575f571a153d5ecc721a116","claims":["01a22eb0-b626-7064-959e-ecabf1d0b99f"]}');
INSERT INTO "events" VALUES(3,5,1.79607966263072657588e+09,'user/message',1,1,NULL,1,'{"message":{"id":"01a22eb0-b626-7064-959e-ecabf1d0b99f","role":"user","parts":[{"kind":"text","text":"Are you there?"}]}}');
INSERT INTO "events" VALUES(3,6,1.79607966263079261775e+09,'model/request',1,1,NULL,1,'{"attempt":1,"digest":"aa94243d61dc6b31cb08f206f1e57780","header":{"model":"script:inline","family":"script"}}');
INSERT INTO "events" VALUES(3,7,1.79607966263092184069e+09,'model/failed',1,1,NULL,1,'{"attempt":1,"kind":"bad_request","error":"The model call failed (bad_request): the model is not well","action":"stop"}');
INSERT INTO "events" VALUES(3,8,1.7960796626309535503e+09,'step/end',1,1,NULL,1,'{"outcome":"failed"}');
INSERT INTO "events" VALUES(3,9,1.79607966263096857075e+09,'turn/end',1,NULL,NULL,1,'{"reason":"failed","park":true,"steps":1,"usage":{},"detail":"The model call failed (bad_request): the model is not well"}');
INSERT INTO "events" VALUES(3,10,5.25,'gone/away',NULL,NULL,'gone',0,'["x"]');
INSERT INTO "events" VALUES(4,35,1.79607966263004803662e+09,'session/open',NULL,NULL,NULL,1,'{"reason":"fork","kernel":"0.1.0","plugins":[["notes",""],["asks",""]],"parent":"sums","parent_seq":34}');
INSERT INTO "events" VALUES(4,36,1.7960796626325652599e+09,'session/open',NULL,NULL,NULL,1,'{"reason":"resume","kernel":"0.1.0","plugins":[["notes",""],["asks",""]]}');
INSERT INTO "events" VALUES(4,37,1.7960796626325652599e+09,'inbox/put',NULL,NULL,NULL,1,'{"message":{"id":"01a22eb0-b628-775c-b8a6-9a5a2e2b2480","role":"user","parts":[{"kind":"text","text":"And now?"}]},"lane":"turn","wake":true}');
INSERT INTO "events" VALUES(4,38,1.7960796626325652599e+09,'turn/start',3,NULL,NULL,1,'{}');
INSERT INTO "events" VALUES(4,39,1.79607966263283634188e+09,'step/start',3,1,NULL,1,'{"agent":"agent","digest":"35e4a95ae7223183959b6537f49ea8504d740aa62575f571a153d5ecc721a116","claims":["01a22eb0-b628-775c-b8a6-9a5a2e2b2480"]}');
INSERT INTO "events" VALUES(4,40,1.79607966263283634188e+09,'user/message',3,1,NULL,1,'{"message":{"id":"01a22eb0-b628-775c-b8a6-9a5a2e2b2480","role":"user","parts":[{"kind":"text","text":"And now?"}]}}');
INSERT INTO "events" VALUES(4,41,1.7960796626329231262e+09,'model/request',3,1,NULL,1,'{"attempt":1,"digest":"12bc17e8b9b45480909f06763ff580ba","header":{"model":"script:inline","family":"script"}}');
INSERT INTO "events" VALUES(4,42,1.79607966264130830763e+09,'assistant/message',3,1,NULL,1,'{"message":{"id":"01a22eb0-b631-76ec-97ad-ed6ad252ca3e","role":"assistant","parts":[{"kind":"text","text":"Gladly."}],"origin":"model"},"finish":"end","usage":{"input":10,"output":5}}');
INSERT INTO "events" VALUES(4,43,1.79607966264136242862e+09,'step/end',3,1,NULL,1,'{"outcome":"done"}');
INSERT INTO "events" VALUES(4,44,1.79607966264147233962e+09,'notes/seen',3,NULL,'notes',0,'{"big":1000000000000000000000000000000,"nul":"\u0000","none":null}');
INSERT INTO "events" VALUES(4,45,1.79607966264147233962e+09,'turn/end',3,NULL,NULL,1,'{"reason":"completed","park":false,"steps":1,"usage":{"input":10,"output":5}}');
CREATE TABLE posts (                      -- left for the session's writer, until it has made events of them
  key integer primary key autoincrement,
  session_key integer not null references sessions(key) on delete cascade,
  id text not null,
  time real not null,
  kind text not null check (kind in ('message', 'decision', 'cancel')),
  data text not null,
  at text generated always as (strftime('%Y-%m-%dT%H:%M:%fZ', time, 'unixepoch')) virtual,
  unique (session_key, id)
) strict;
CREATE TABLE sessions (
  key integer primary key autoincrement,  -- never used again, so that a stale writer matches no later session
  id text not null unique,
  parent_key integer references sessions(key),  -- a fork begins with its parent's events 1 to parent_seq
  parent_seq integer not null default 0,
  head_seq integer not null default 0,    -- the last seq; 0 = nothing written yet
  created real not null,                  -- seconds since 1970
  updated real not null,
  archived integer not null default 0 check (archived in (0, 1)),
  lease_token integer not null default 0, -- one more for each writer; an append must know it
  lease_ends real,
  lease_holder text,                      -- JSON: the process that writes; null = nobody
  created_at text generated always as (strftime('%Y-%m-%dT%H:%M:%fZ', created, 'unixepoch')) virtual,
  updated_at text generated always as (strftime('%Y-%m-%dT%H:%M:%fZ', updated, 'unixepoch')) virtual,
  lease_until text generated always as (strftime('%Y-%m-%dT%H:%M:%fZ', lease_ends, 'unixepoch')) virtual
) strict;
INSERT INTO "sessions" VALUES(1,'waits',NULL,0,11,1.79607966296940302851e+09,1.79607966263182044033e+09,0,1,NULL,NULL);
INSERT INTO "sessions" VALUES(2,'sums',NULL,0,34,1.79607966297146081921e+09,1.79607966263004803662e+09,0,1,NULL,NULL);
INSERT INTO "sessions" VALUES(3,'failed',NULL,0,10,1.79607966297238445287e+09,5.25,1,1,NULL,NULL);
INSERT INTO "sessions" VALUES(4,'again',2,34,45,1.7960796629738214016e+09,1.79607966264147233962e+09,0,1,NULL,NULL);
CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name");
CREATE INDEX sessions_forks on sessions(parent_key) where parent_key is not null;
CREATE INDEX events_meta on events(session_key, seq) where type = 'session/meta';
CREATE TRIGGER events_never_change before update on events
begin select raise(abort, 'events are append-only'); end;
CREATE VIEW turns as
select s.id as session_id, e.turn, min(e.at) as started_at,
  max(case when e.type = 'turn/end' then e.at end) as ended_at,
  max(case when e.type = 'turn/end' then json_extract(e.data, '$.reason') end) as reason,
  max(case when e.type = 'turn/end' then json_extract(e.data, '$.detail') end) as detail,
  count(case when e.type = 'step/start' then 1 end) as steps,
  sum(case when e.type = 'turn/end' then ifnull(json_extract(e.data, '$.usage.input'), 0)
    + ifnull(json_extract(e.data, '$.usage.cache_read'), 0)
    + ifnull(json_extract(e.data, '$.usage.cache_write'), 0) end) as input_tokens,
  sum(case when e.type = 'turn/end' then ifnull(json_extract(e.data, '$.usage.output'), 0)
    + ifnull(json_extract(e.data, '$.usage.reasoning'), 0) end) as output_tokens
from events e join sessions s on s.key = e.session_key
where e.turn is not null group by e.session_key, e.turn;
CREATE VIEW steps as
select s.id as session_id, e.turn, e.step, min(e.at) as started_at,
  max(case when e.type = 'step/end' then e.at end) as ended_at,
  max(case when e.type = 'step/start' then json_extract(e.data, '$.agent') end) as agent,
  max(case when e.type = 'step/end' then json_extract(e.data, '$.outcome') end) as outcome,
  count(case when e.type = 'model/request' then 1 end) as requests,
  count(case when e.type = 'tool/call' then 1 end) as tool_calls,
  max(case when e.type = 'assistant/message' then json_extract(e.data, '$.finish') end) as finish
from events e join sessions s on s.key = e.session_key
where e.step is not null group by e.session_key, e.turn, e.step;
CREATE VIEW messages as
select s.id as session_id, e.seq, e.at, e.turn, e.step,
  case e.type when 'tool/result' then 'tool' else json_extract(e.data, '$.message.role') end as role,
  (select group_concat(json_extract(part.value, '$.text'), '')
    from json_each(e.data, case e.type when 'tool/result' then '$.parts' else '$.message.parts' end) part
    where json_extract(part.value, '$.kind') = 'text') as text,
  (select group_concat(json_extract(part.value, '$.name') || ' ' || json_extract(part.value, '$.arguments'), char(10))
    from json_each(e.data, '$.message.parts') part
    where json_extract(part.value, '$.kind') = 'call') as calls,
  json_extract(e.data, '$.status') as status
from events e join sessions s on s.key = e.session_key
where e.type in ('user/message', 'assistant/message', 'tool/result');
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('sessions',5);
COMMIT;
