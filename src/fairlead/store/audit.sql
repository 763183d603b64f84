-- The audit log is only ever added to, in the transaction of the change it speaks of.

-- name: write
insert into fairlead.audit_log (tenant_id, actor, action, resource_type, resource_id, details)
values (%(tenant_id)s, %(actor)s, %(action)s, %(resource_type)s, %(resource_id)s, %(details)s);

-- name: recent
select at, tenant_id, actor, action, resource_type, resource_id, details
from fairlead.audit_log
where (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
order by at desc limit %(limit)s;
