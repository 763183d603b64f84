-- A status and its times fit: the statements see to that, `fairlead doctor` and the continuous checks look at it (see
-- store/consistency.sql). PostgreSQL reads a check anew for every statement, which was a tenth of a single enqueue.
alter table fairlead.jobs drop constraint jobs_life;
