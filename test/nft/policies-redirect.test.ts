import { describePolicies } from './policies.js';

describePolicies('redirect');
