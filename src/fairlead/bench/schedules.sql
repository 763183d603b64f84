-- Schedules for the bench: adds them, removes them, makes them due.

-- name: add
insert into fairlead.job_triggers (
    tenant_id, label, trigger_type, every_seconds, start_at, definition_id, payload_template, next_fire_at)
select t.id, %(label)s, 'schedule', 3600, now(), d.id, '{"name": "{{tenant.name}}", "n": 1}',
    now() + interval '1 hour' + n * interval '1 second'
from fairlead.tenants t, fairlead.job_definitions d, generate_series(1, %(count)s) n
where t.slug = %(tenant)s and d.key = 'greet';

-- name: remove
delete from fairlead.job_triggers where label = %(label)s;

-- name: come
update fairlead.job_triggers set start_at = now(), next_fire_at = now() where label = %(label)s;
